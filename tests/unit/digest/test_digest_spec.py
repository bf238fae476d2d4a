"""The integer arithmetic, the reference, and the worked example of docs/digest.md."""

import contextlib
import io
import re
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.digest import reference, spec, words
from engine_adapters.digest.errors import LayersError
from engine_adapters.digest.tensors import tensor_digest

U64 = st.integers(0, spec.MASK64)
DOCUMENT = Path(__file__).parents[3] / "docs" / "digest.md"


def unmix64(x: int) -> int:
    """Inverse of mix64, from its definition."""
    x ^= x >> 32
    x = x * pow(spec.MIX_SECOND, -1, 1 << 64) & spec.MASK64
    x ^= (x >> 29) ^ (x >> 58)
    x = x * pow(spec.MIX_FIRST, -1, 1 << 64) & spec.MASK64
    return x ^ (x >> 32)


def test_mix64_has_its_committed_values():
    assert [spec.mix64(x) for x in (0, 1, 1 << 63, spec.MASK64)] == [
        0,
        0x92D7_1D03_DF3D_641E,
        0xE25F_2332_6DE6_1BF6,
        0xD43A_0B74_34B7_850C,
    ]


@given(U64)
def test_mix64_loses_nothing(x):
    assert unmix64(spec.mix64(x)) == x


@given(U64)
def test_vectorised_mix64_is_the_same(x):
    found = words.mix64(torch.tensor([spec.signed(x)]))
    assert int(found.item()) & spec.MASK64 == spec.mix64(x)


def test_mix64_spreads_every_bit_to_every_bit():
    generator = torch.Generator().manual_seed(7)
    x = torch.randint(-(1 << 63), (1 << 63) - 1, (4096, 1), generator=generator)
    bits = torch.tensor([spec.signed(1 << bit) for bit in range(64)])
    changed = words.mix64(x ^ bits) ^ words.mix64(x)
    ones = ((changed.unsqueeze(2) >> torch.arange(64)) & 1).double().mean(0)
    # Standard deviation is 0.008; 4,096 entries. The outermost shifts leave no weak corner.
    assert ones.min() > 0.45
    assert ones.max() < 0.55


def test_token_digests_have_their_committed_values():
    rows = [bytes(k * 131 % 251 for k in range(768 + i))[i:] for i in range(6)]
    assert reference.token_digests(rows, range(3, 9), (4, 2)) == [
        0x1169_E430_9556_6978,
        0xBF3C_79B2_3C07_DDAA,
    ]


@given(st.integers(1, 300), st.integers(1, 300))
def test_layers_are_split_evenly_and_wholly(layers, groups):
    shares = spec.split_layers(layers, groups)
    assert sum(shares) == layers
    assert len(shares) == min(layers, groups)
    assert list(shares) == sorted(shares, reverse=True)
    assert shares[0] - shares[-1] <= 1


def test_thirty_layers_in_four_groups():
    assert spec.split_layers(30, 4) == (8, 8, 7, 7)


@pytest.mark.parametrize(("layers", "groups"), [(0, 4), (-1, 4), (30, 0), (30, -2)])
def test_counts_below_one_are_refused(layers, groups):
    with pytest.raises(LayersError):
        spec.split_layers(layers, groups)


@pytest.mark.parametrize("shares", [(1,), (3,), (2, 0), (3, -1), ()])
def test_shares_that_do_not_add_up_are_refused(shares):
    with pytest.raises(LayersError):
        reference.token_digests([b"a", b"b"], [0, 1], shares)


def test_rows_without_a_layer_are_refused():
    with pytest.raises(LayersError):
        reference.token_digests([b"a", b"b"], [0], (1,))


def test_the_worked_example_is_true():
    text = DOCUMENT.read_text()
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    output = re.search(r"```text\n(.*?)```", text, re.DOTALL)
    assert code
    assert output
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code[1], {})  # noqa: S102 - the document's own example
    assert printed.getvalue() == output[1]

    rows = [bytes(range(start, start + 16)) for start in (0, 16, 32)]
    token = reference.token_digests(rows, (0, 1, 2), (2, 1))
    tensor, _ = tensor_digest(torch.tensor([[1, 2, 3], [4, 5, 6]], dtype=torch.int8))
    assert output[1].split() == [
        *(word for row in rows for word in ("row", f"{reference.row_digest(row):016x}")),
        "token",
        *(f"{digest:016x}" for digest in token),
        "tensor",
        f"{tensor:016x}",
    ]
