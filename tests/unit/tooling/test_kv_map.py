"""Addresses by a map that describes a known cache point at the known numbers."""

import ctypes
import json
from pathlib import Path

import numpy as np
import pytest

from tools.demo.errors import DemoError
from tools.demo.kv_map import read_kv_map

BLOCKS, TOKENS, HEADS, CHANNELS = 6, 4, 3, 8


def write_map(folder: Path, values: np.ndarray) -> None:
    document = {
        "pid": 77,
        "rank": 0,
        "step": 12,
        "groups": [
            {
                "kv_group": 0,
                "block_size": TOKENS,
                "layers": [
                    {
                        "layer": 5,
                        "address": values.__array_interface__["data"][0],
                        "strides": list(values.strides),
                        "shape": list(values.shape),
                    }
                ],
            }
        ],
        "sessions": [
            {"session_id": "cmpl-a-0-x", "kv_group": 0, "positions": 7, "blocks": [4, 2]},
        ],
    }
    (folder / "kv-map-0.json").write_text(json.dumps(document))


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3), (2, 0, 1, 3)])
def test_target_is_the_row_of_the_position(tmp_path: Path, order):
    sizes = (BLOCKS, TOKENS, HEADS, CHANNELS)
    stored = np.empty([sizes[i] for i in order], np.uint16)
    values = stored.transpose(np.argsort(order))
    values[...] = np.arange(values.size).reshape(sizes)
    write_map(tmp_path, values)

    target = read_kv_map(tmp_path, 0).target("cmpl-a", 5, 6)

    assert (target.pid, target.rank, target.session_id) == (77, 0, "cmpl-a-0-x")
    # Position 6 is token 2 of the second block, which is block 2.
    assert ctypes.c_uint16.from_address(target.address).value == values[2, 2, 0, 0]


def test_what_is_not_there_is_an_error(tmp_path: Path):
    with pytest.raises(DemoError, match="drill mode"):
        read_kv_map(tmp_path, 0)
    write_map(tmp_path, np.zeros((BLOCKS, TOKENS, HEADS, CHANNELS), np.uint16))
    kv_map = read_kv_map(tmp_path, 0)
    with pytest.raises(DemoError, match="positions below 7"):
        kv_map.target("cmpl-a", 5, 7)
    with pytest.raises(DemoError, match="layer 6"):
        kv_map.target("cmpl-a", 6, 0)
    with pytest.raises(DemoError, match="not in the KV map"):
        kv_map.target("cmpl-b", 5, 0)
