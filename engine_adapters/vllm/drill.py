"""Drill mode (setting `drill`): where a rank's KV lies, for whoever injects a fault into it.

With TOKENWITNESS_DRILL_FOLDER set, each attestation leaves `kv-map-RANK.json` there: addresses
and strides of the values' half of every layer and the block tables of all live sessions. Never
written otherwise: it makes it easy to change one chosen bit of a living process.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine_adapters.report.log import never_raises
from engine_adapters.vllm.kv_groups import attention_shape, layer_numbers
from engine_adapters.vllm.layouts import parts_of
from engine_adapters.vllm.rank_tables import RankTables

FOLDER_VARIABLE = "TOKENWITNESS_DRILL_FOLDER"


class KvMapWriter:
    """Writes the map of one rank. What goes wrong is logged: attesting matters more."""

    def __init__(self, folder: Path, rank: int, groups: list[dict[str, Any]]) -> None:
        self._path = folder / f"kv-map-{rank}.json"
        self._rank = rank
        self._groups = groups

    @never_raises(None)
    def write(self, step: int, tables: RankTables) -> None:
        document = {
            "pid": os.getpid(),
            "rank": self._rank,
            "step": step,
            "groups": self._groups,
            "sessions": [
                {
                    "session_id": name,
                    "kv_group": group["kv_group"],
                    "positions": written,
                    "blocks": _blocks(tables, group["kv_group"], row, written),
                }
                for group in self._groups
                for row, name, written in tables.live()
            ],
        }
        unfinished = self._path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(document))
        unfinished.replace(self._path)


def kv_map_writer(
    rank: int,
    kv_cache_config: Any,
    kv_caches: Mapping[str, torch.Tensor],
    environ: Mapping[str, str],
) -> KvMapWriter | None:
    """The writer, or None where no folder is named. Groups as in `kv_groups.observe_groups`."""
    folder = environ.get(FOLDER_VARIABLE)
    if not folder:
        return None
    groups = [
        _group(index, group, kv_caches)
        for index, group in enumerate(kv_cache_config.kv_cache_groups)
        if any(name in kv_caches for name in group.layer_names)
    ]
    return KvMapWriter(Path(folder), rank, groups)


def _group(index: int, group: Any, kv_caches: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    names = [name for name in group.layer_names if name in kv_caches]
    numbers = layer_numbers(names)
    shape = attention_shape(names[0], group.kv_cache_spec)
    return {
        "kv_group": index,
        "block_size": shape.block_size,
        "layers": [
            {
                "layer": numbers[name],
                "address": values.data_ptr(),
                "strides": [stride * values.element_size() for stride in values.stride()],
                "shape": list(values.shape),
            }
            for name in names
            for values in [parts_of(name, kv_caches[name], shape)[-1]]
        ],
    }


def _blocks(tables: RankTables, group: int, row: int, written: int) -> list[int]:
    table = tables.groups[group]
    firsts = np.arange(0, written, table.block_size)
    slots = table.slots(np.full(len(firsts), row), firsts)
    return [int(slot) // table.block_size for slot in slots]
