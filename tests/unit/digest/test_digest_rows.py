"""Vectorised rows against the stock package: every length, shape, stride and chunking."""

import pytest
import torch
from golden_rows import GOLDEN, pattern
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_adapters.digest import reference, rows, spec, xxh3_constants
from engine_adapters.digest.errors import LayersError, RowsError


def unsigned(digests: torch.Tensor) -> list[int]:
    return [value & spec.MASK64 for value in digests.reshape(-1).tolist()]


def random_rows(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


def by_reference(data: torch.Tensor) -> list[int]:
    flat = data.reshape(data.shape[:-1].numel(), data.shape[-1])
    return [reference.row_digest(bytes(row.tolist())) for row in flat]


@pytest.mark.parametrize("length", GOLDEN)
def test_rows_have_their_committed_digests(length):
    row = torch.tensor(list(pattern(length)), dtype=torch.uint8)
    assert unsigned(rows.row_digests(row)) == [GOLDEN[length]]
    assert reference.row_digest(pattern(length)) == GOLDEN[length]


def test_every_length_up_to_three_blocks():
    for length in range(3 * 1024 + 66):
        data = random_rows(2, length, seed=length)
        assert unsigned(rows.row_digests(data)) == by_reference(data), length


@pytest.mark.parametrize("value", [0, 0x80, 0xFF])
@pytest.mark.parametrize("length", [3, 8, 16, 100, 200, 768, 2049])
def test_uniform_rows(length, value):
    data = torch.full((1, length), value, dtype=torch.uint8)
    assert unsigned(rows.row_digests(data)) == by_reference(data)


@settings(deadline=None)
@given(
    length=st.one_of(st.integers(0, 300), st.integers(0, 5000)),
    batch=st.lists(st.integers(0, 4), max_size=3),
    margin=st.integers(0, 9),
    step=st.integers(1, 3),
    order=st.randoms(use_true_random=False),
    seed=st.integers(0, 1 << 30),
)
def test_any_shape_and_strides(*, length, batch, margin, step, order, seed):
    # A row starts at any address, its bytes lie apart, its dimensions in any order.
    store = random_rows(*batch, margin + length * step, seed=seed)
    data = store[..., margin::step]
    dimensions = list(range(len(batch)))
    order.shuffle(dimensions)
    data = data.permute(*dimensions, len(batch))
    digests = rows.row_digests(data)
    assert digests.shape == data.shape[:-1]
    assert digests.dtype == torch.int64
    assert unsigned(digests) == by_reference(data)


@pytest.mark.parametrize("chunk", [1, 700, 768 * 7, 1 << 20])
def test_chunks_change_nothing_and_bound_the_memory(chunk, monkeypatch):
    seen = []
    real = rows._hash
    monkeypatch.setattr(rows, "CHUNK_BYTES_CPU", chunk)
    monkeypatch.setattr(rows, "_hash", lambda part: seen.append(part.numel()) or real(part))
    for data in (
        random_rows(5, 4, 6, 768),
        random_rows(5, 6, 4, 768).transpose(1, 2),
        random_rows(6, 4, 5, 768).transpose(0, 2),
        random_rows(40, 1536)[:, 5:773],
    ):
        seen.clear()
        assert unsigned(rows.row_digests(data)) == by_reference(data)
        assert max(seen) <= max(chunk, 768)


def test_input_is_left_alone():
    data = random_rows(30, 768)
    before = data.clone()
    rows.token_digests(data.view(1, 30, 768), range(30), (30,))
    assert torch.equal(data, before)


def test_tables_are_made_once():
    data = random_rows(4, 1500)
    rows.row_digests(data)
    misses = xxh3_constants.secret_words.cache_info().misses
    rows.row_digests(data)
    assert xxh3_constants.secret_words.cache_info().misses == misses


def test_tables_made_in_inference_mode_serve_outside_of_it():
    xxh3_constants.constants.cache_clear()
    xxh3_constants.secret_words.cache_clear()
    for length in GOLDEN:
        data = torch.tensor([list(pattern(length))], dtype=torch.uint8)
        with torch.inference_mode():
            inside = unsigned(rows.row_digests(data))
        assert inside == unsigned(rows.row_digests(data)) == [GOLDEN[length]]


@settings(deadline=None, max_examples=40)
@given(
    tokens=st.integers(0, 4),
    layers=st.lists(st.integers(0, 200), min_size=1, max_size=9, unique=True).map(sorted),
    groups=st.integers(1, 10),
    length=st.sampled_from([4, 64, 256, 768]),
    seed=st.integers(0, 1 << 30),
)
def test_tokens_fold_as_the_reference_does(tokens, layers, groups, length, seed):
    data = random_rows(tokens, len(layers), length, seed=seed)
    shares = spec.split_layers(len(layers), groups)
    found = rows.token_digests(data, layers, shares)
    assert found.shape == (tokens, len(shares))
    expected = [
        reference.token_digests([bytes(row.tolist()) for row in token], layers, shares)
        for token in data
    ]
    assert unsigned(found) == [digest for token in expected for digest in token]


@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16, torch.int64, torch.bool])
def test_rows_that_are_not_bytes_are_refused(dtype):
    with pytest.raises(RowsError, match="view them as"):
        rows.row_digests(torch.zeros(3, 8, dtype=dtype))


def test_rows_without_a_dimension_are_refused():
    with pytest.raises(RowsError):
        rows.row_digests(torch.tensor(1, dtype=torch.uint8))


@pytest.mark.parametrize("shape", [(4,), (4, 2), (2, 4, 3)])
def test_row_digests_of_another_shape_are_refused(shape):
    with pytest.raises(LayersError):
        rows.fold_tokens(torch.zeros(shape, dtype=torch.int64), (0, 1, 2), (3,))


def test_shares_that_do_not_add_up_are_refused():
    with pytest.raises(LayersError):
        rows.fold_tokens(torch.zeros(4, 3, dtype=torch.int64), (0, 1, 2), (2, 2))
