"""What the demo prints follows from the verdict's document and from nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.demo.verdicts import Verdict, spans


def finding(verdict: str, *, rank=None, layers=(), starts=(), ends=()):
    return {
        "verdict": verdict,
        "rank": rank,
        "layers": list(layers),
        "position_starts": list(starts),
        "position_ends": list(ends),
        "reason": "because",
    }


def worker_verdict(name: str, session_findings=(), findings=()):
    return Verdict(
        {
            "verdict": name,
            "final": True,
            "compared": None,
            "findings": list(findings),
            "sessions": [{"session_id": "s", "verdict": name, "findings": list(session_findings)}],
        }
    )


def test_clean_line_names_no_place():
    assert worker_verdict("RESUMED_EXACT").line() == "RESUMED_EXACT"


def test_kv_line_joins_all_findings():
    verdict = worker_verdict(
        "KV_MISMATCH",
        [
            finding("KV_MISMATCH", rank=0, layers=[8, 9, 10], starts=[37], ends=[38]),
            finding("KV_MISMATCH", rank=1, layers=[2], starts=[4, 37], ends=[6, 39]),
            finding("DIVERGED"),
        ],
    )
    assert verdict.line() == "KV_MISMATCH rank=0-1 layers=2,8-10 positions=4-5,37-38"


def test_position_zero_and_rank_zero_are_places():
    verdict = worker_verdict(
        "KV_MISMATCH", [finding("KV_MISMATCH", rank=0, layers=[0], starts=[0], ends=[1])]
    )
    assert verdict.kv_places() == "rank=0 layers=0 positions=0"


def test_ranges_of_unequal_length_are_an_error():
    verdict = worker_verdict(
        "KV_MISMATCH", [finding("KV_MISMATCH", rank=0, layers=[0], starts=[0, 1], ends=[1])]
    )
    with pytest.raises(ValueError, match="shorter"):
        verdict.kv_places()


@given(st.sets(st.integers(0, 200)))
def test_spans_say_exactly_their_numbers(numbers: set[int]):
    said: list[int] = []
    for part in filter(None, spans(numbers).split(",")):
        first, _, last = part.partition("-")
        said += range(int(first), int(last or first) + 1)
    assert said == sorted(numbers)
