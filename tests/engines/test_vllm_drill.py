"""The map that a rank in drill mode writes leads to the very bytes that are digested."""

import ctypes
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from engine_adapters.vllm.layouts import AttentionShape, make_layout
from tests.engines.vllm_support.engine import MARKS
from tools.demo.kv_map import read_kv_map

pytestmark = MARKS

BLOCKS, HEADS, BLOCK_SIZE, CHANNELS, LAYERS = 7, 3, 32, 16, 4
NAMES = [f"model.layers.{i}.self_attn.attn" for i in range(LAYERS)]


class FullAttentionSpec:
    """Looks like the engine's own of that name."""

    block_size = BLOCK_SIZE
    num_kv_heads = HEADS
    head_size = CHANNELS


def caches() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    storage = torch.randint(
        0, 1 << 15, (LAYERS, BLOCKS, HEADS, BLOCK_SIZE, 2 * CHANNELS), generator=generator
    ).to(torch.int16)
    return {name: storage[i].view(torch.bfloat16) for i, name in enumerate(NAMES)}


def tables():
    from engine_adapters.report.records import BlockUpdate
    from engine_adapters.vllm.metadata import StepMetadata
    from engine_adapters.vllm.rank_tables import RankTables

    made = RankTables({0: BLOCK_SIZE})
    step = StepMetadata(
        step=1,
        rows=np.array([3]),
        starts=np.array([0]),
        counts=np.array([40]),
        started=[(3, "cmpl-x-0")],
        tables=[BlockUpdate(3, 0, 0, [5, 2])],
    )
    made.apply(step)
    made.finished(step)
    return made


def write(folder: Path, kv: dict[str, torch.Tensor]) -> None:
    from engine_adapters.vllm.drill import FOLDER_VARIABLE, kv_map_writer

    group = SimpleNamespace(layer_names=NAMES, kv_cache_spec=FullAttentionSpec())
    config = SimpleNamespace(kv_cache_groups=[group])
    writer = kv_map_writer(0, config, kv, {FOLDER_VARIABLE: str(folder)})
    assert writer is not None
    writer.write(1, tables())


def test_a_flip_at_the_address_changes_the_row_and_no_other(tmp_path: Path):
    kv = caches()
    layout = make_layout(kv, AttentionShape(BLOCK_SIZE, HEADS, CHANNELS, CHANNELS))
    everything = torch.arange(BLOCK_SIZE, BLOCKS * BLOCK_SIZE)
    before = layout.gather(everything)
    write(tmp_path, kv)

    target = read_kv_map(tmp_path, 0).target("cmpl-x", layer=2, position=37)
    byte = ctypes.c_uint8.from_address(target.address)
    byte.value ^= 0x08

    slot, layer, _ = (layout.gather(everything) != before).nonzero()[0].tolist()
    assert (layout.gather(everything) != before).sum() == 1
    # Position 37 is token 5 of the second block, which is block 2.
    assert (int(everything[slot]), layer) == (2 * BLOCK_SIZE + 5, 2)


def test_no_folder_no_map():
    from engine_adapters.vllm.drill import kv_map_writer

    assert kv_map_writer(0, SimpleNamespace(kv_cache_groups=[]), {}, {}) is None


def test_a_folder_that_is_not_there_is_logged_and_no_error(tmp_path: Path):
    write(tmp_path, caches())
    json.loads((tmp_path / "kv-map-0.json").read_text())
    write(tmp_path / "nowhere", caches())
