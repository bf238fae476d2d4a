"""Rows read from synthetic caches whose every byte is known."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.vllm.errors import UnsupportedLayoutError
from engine_adapters.vllm.layouts import AttentionShape, PartedLayout, make_layout, strided

BLOCKS, HEADS, SIZE, WIDTH, LAYERS = 5, 3, 8, 4, 3
SHAPE = AttentionShape(block_size=SIZE, heads=HEADS, head_size=WIDTH, head_size_v=WIDTH)
DTYPES = [torch.bfloat16, torch.float32, torch.uint8]
ORDERS = {
    "LBHNC": (0, 1, 2, 3, 4),
    "LBNHC": (0, 1, 3, 2, 4),
    "LHBNC": (0, 2, 1, 3, 4),
    "BLHNC": (1, 0, 2, 3, 4),
    "BLNHC": (1, 0, 3, 2, 4),
    "BHLNC": (1, 2, 0, 3, 4),
}


def known(layers: int, dtype: torch.dtype, width: int = 2 * WIDTH) -> torch.Tensor:
    """[layers, slots, heads, width] of random bytes: what each row must say."""
    count = layers * BLOCKS * SIZE * HEADS * width
    raw = torch.randint(0, 256, (count * dtype.itemsize,), dtype=torch.uint8)
    return raw.view(dtype).view(layers, BLOCKS * SIZE, HEADS, width)


def expected(rows: torch.Tensor, slot: int, layer: int, split: int = WIDTH) -> bytes:
    row = rows[layer, slot]
    key, value = row[:, :split].contiguous(), row[:, split:].contiguous()
    return b"".join(part.view(torch.uint8).numpy().tobytes() for part in (key, value))


def check(layout: PartedLayout, rows: torch.Tensor, layers: int, split: int = WIDTH) -> None:
    slots = torch.tensor([0, 7, 8, 39, 21, 21])
    found = layout.gather(slots)
    assert found.dtype == torch.uint8
    assert found.shape == (len(slots), layers, layout.row_bytes)
    for i, layer in itertools.product(range(len(slots)), range(layers)):
        assert found[i, layer].numpy().tobytes() == expected(rows, int(slots[i]), layer, split)


def cpu_cache(rows: torch.Tensor) -> torch.Tensor:
    """Fills a cache byte by byte as the CPU kernel does, one slot after the other."""
    layers = rows.shape[0]
    cache = torch.zeros((layers, BLOCKS, HEADS, SIZE, 2 * WIDTH), dtype=rows.dtype)
    flat = cache.view(layers, BLOCKS, HEADS, 2, WIDTH * SIZE)
    for slot, head in itertools.product(range(BLOCKS * SIZE), range(HEADS)):
        block, offset = divmod(slot, SIZE)
        for channel in range(WIDTH):
            flat[:, block, head, 0, channel * SIZE + offset] = rows[:, slot, head, channel]
            flat[:, block, head, 1, offset * WIDTH + channel] = rows[:, slot, head, WIDTH + channel]
    return cache


@pytest.mark.parametrize("dtype", DTYPES)
def test_cpu_rows_in_one_storage(dtype):
    rows = known(LAYERS, dtype)
    cache = cpu_cache(rows)
    check(make_layout({str(i): cache[i] for i in range(LAYERS)}, SHAPE), rows, LAYERS)


def test_cpu_rows_of_layers_in_storages_of_their_own():
    rows = known(LAYERS, torch.bfloat16)
    cache = cpu_cache(rows)
    check(make_layout({str(i): cache[i].clone() for i in range(LAYERS)}, SHAPE), rows, LAYERS)


def test_cpu_rows_of_layers_at_uneven_distances():
    rows = known(4, torch.bfloat16)
    cache = cpu_cache(rows)
    taken = [0, 1, 3]
    check(make_layout({str(i): cache[i] for i in taken}, SHAPE), rows[taken], len(taken))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_packed_rows_in_every_physical_order(order, dtype):
    rows = known(LAYERS, dtype)
    logical = rows.view(LAYERS, BLOCKS, SIZE, HEADS, 2 * WIDTH).permute(0, 1, 3, 2, 4)
    permutation = ORDERS[order]
    physical = logical.permute(permutation).contiguous()
    back = [permutation.index(i) for i in range(5)]
    views = physical.permute(back)
    layout = PartedLayout([strided.packed(views[i], WIDTH) for i in range(LAYERS)])
    check(layout, rows, LAYERS)


def test_packed_rows_with_a_narrower_value():
    rows = known(LAYERS, torch.bfloat16, WIDTH + 2)
    logical = rows.view(LAYERS, BLOCKS, SIZE, HEADS, WIDTH + 2).permute(0, 1, 3, 2, 4)
    layout = PartedLayout([strided.packed(logical[i], WIDTH) for i in range(LAYERS)])
    assert layout.row_bytes == HEADS * (WIDTH + 2) * 2
    check(layout, rows, LAYERS)


@pytest.mark.parametrize("heads_first", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_pairs(axis, heads_first):
    rows = known(LAYERS, torch.float16)
    tokens = rows.view(LAYERS, BLOCKS, SIZE, HEADS, 2 * WIDTH)
    if heads_first:
        tokens = tokens.transpose(2, 3)
    key, value = tokens.split(WIDTH, dim=-1)
    views = torch.stack([key, value], dim=1 + axis).contiguous()
    check(make_layout({str(i): views[i] for i in range(LAYERS)}, SHAPE), rows, LAYERS)


@pytest.mark.parametrize("with_head", [False, True])
def test_latent(with_head):
    shape = AttentionShape(block_size=SIZE, heads=1, head_size=6, head_size_v=0, latent=True)
    cache = torch.randint(0, 9, (BLOCKS, SIZE, 6), dtype=torch.int16)
    layout = make_layout({"0": cache.unsqueeze(1) if with_head else cache}, shape)
    assert layout.row_bytes == 12
    found = layout.gather(torch.tensor([17]))
    assert found[0, 0].numpy().tobytes() == cache[2, 1].numpy().tobytes()


def test_kernel_blocks_smaller_than_the_managers_keep_slots():
    shape = AttentionShape(block_size=2 * SIZE, heads=HEADS, head_size=WIDTH, head_size_v=WIDTH)
    rows = known(1, torch.bfloat16)
    check(make_layout({"0": cpu_cache(rows)[0]}, shape), rows, 1)


@given(st.integers(0, BLOCKS * SIZE - 1), st.integers(0, LAYERS - 1), st.integers(0, 191))
def test_every_byte_of_a_row_is_read_from_one_place(slot, layer, bit):
    """Flipping one bit of the cache changes exactly one row, in one layer."""
    rows = torch.zeros((LAYERS, BLOCKS * SIZE, HEADS, 2 * WIDTH), dtype=torch.uint8)
    rows[layer, slot].view(-1)[bit // 8] = 1 << (bit % 8)
    layout = make_layout({str(i): cpu_cache(rows)[i] for i in range(LAYERS)}, SHAPE)
    found = layout.gather(torch.arange(BLOCKS * SIZE))
    assert found.sum() == 1 << (bit % 8)
    assert found[slot, layer].sum() == 1 << (bit % 8)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(BLOCKS, HEADS, SIZE, WIDTH),
        torch.zeros(BLOCKS, SIZE * 2),
        torch.zeros(BLOCKS, HEADS, 3, 2 * WIDTH),
        [torch.zeros(1)],
    ],
    ids=["half a row", "a page", "odd blocks", "not a tensor"],
)
def test_what_cannot_be_read_is_named(tensor):
    with pytest.raises(UnsupportedLayoutError, match=r"model\.layers\.7"):
        make_layout({"model.layers.7": tensor}, SHAPE)


def test_a_shape_that_could_be_read_in_two_ways_is_refused():
    shape = AttentionShape(block_size=4, heads=4, head_size=WIDTH, head_size_v=WIDTH)
    with pytest.raises(UnsupportedLayoutError):
        make_layout({"0": torch.zeros(2, 6, 4, 4, WIDTH)}, shape)


def test_layers_of_different_shape_in_one_group_are_refused():
    caches = {"0": torch.zeros(5, HEADS, SIZE, 8), "1": torch.zeros(6, HEADS, SIZE, 8)}
    with pytest.raises(UnsupportedLayoutError, match="one shape"):
        make_layout(caches, SHAPE)
