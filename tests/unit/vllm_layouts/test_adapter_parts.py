"""Parts of the vLLM adapter that need no engine."""

import pytest
import torch

from engine_adapters.vllm.errors import UnsupportedEngineError
from engine_adapters.vllm.exact_cpu import two_rows_or_more
from engine_adapters.vllm.sampler_watch import MOST_PER_STEP, SamplerWatch
from engine_adapters.vllm.versions import check_version


@pytest.mark.parametrize(
    ("text", "version"),
    [("0.26.0", (0, 26)), ("0.32.0+cpu", (0, 32)), ("0.33.1rc2", (0, 33))],
)
def test_supported_versions(text, version):
    assert check_version(text) == version


@pytest.mark.parametrize("text", ["0.25.9", "0.34.0", "1.26.0", "dev", ""])
def test_versions_out_of_range_are_named(text):
    with pytest.raises(UnsupportedEngineError, match=r"0\.26 to 0\.33") as raised:
        check_version(text)
    assert raised.value.found == text


@pytest.mark.parametrize("shape", [(1, 5), (5,), (1, 1, 5), (3, 5)])
def test_a_product_never_sees_one_row(shape):
    seen = []

    def linear(x, weight, bias):
        seen.append(tuple(x.shape))
        return torch.nn.functional.linear(x, weight, bias)

    x, weight, bias = torch.randn(shape), torch.randn(7, 5), torch.randn(7)
    found = two_rows_or_more(linear)(x, weight, bias)
    expected = torch.nn.functional.linear(x, weight, bias)
    assert found.shape == expected.shape
    assert torch.allclose(found, expected, atol=1e-6)
    assert seen == [(2, 5) if x.numel() == 5 else shape]


def watch(generators):
    """Sessions a, b, ... whose generators are the given values; None: not run yet."""

    def find(name):
        if generators[name] is None:
            return False, None
        return True, lambda: generators[name]

    made = SamplerWatch(find)
    made.expect([(row, name) for row, name in enumerate(generators)])
    return made


def test_a_generator_is_read_again_each_time():
    generators = {"a": b"1"}
    made = watch(generators)
    first = made.next_few()[1].tolist()
    assert made.next_few()[1].tolist() == first
    generators["a"] = b"2"
    assert made.next_few()[1].tolist() != first


def test_a_session_that_has_not_run_has_no_generator_yet():
    generators = {"a": None, "b": b"x"}
    made = watch(generators)
    assert made.all()[0].tolist() == [1]
    generators["a"] = b"y"
    assert made.all()[0].tolist() == [0, 1]


def test_a_session_that_ended_is_not_read():
    generators = {"a": b"x", "b": None}
    made = watch(generators)
    made.all()
    made.forget([0, 1])
    generators["b"] = b"y"
    assert made.all()[0].tolist() == []


def test_all_generators_come_in_turn():
    made = watch({str(i): b"%d" % i for i in range(3 * MOST_PER_STEP - 2)})
    seen = [made.next_few()[0].tolist() for _ in range(3)]
    assert all(len(rows) == MOST_PER_STEP for rows in seen)
    assert {row for rows in seen for row in rows} == set(range(3 * MOST_PER_STEP - 2))
