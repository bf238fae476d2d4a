"""Where one number of the KV cache lies, by the map that a rank in drill mode writes.

The map is written at each attestation into TOKENWITNESS_DRILL_FOLDER as `kv-map-RANK.json`:

    {"pid": 1, "rank": 0, "step": 41,
     "groups": [{"kv_group": 0, "block_size": 32,
                 "layers": [{"layer": 0, "address": 140, "strides": [24576, 128, 8192, 2],
                             "shape": [512, 32, 3, 64]}]}],
     "sessions": [{"session_id": "cmpl-1", "kv_group": 0, "positions": 77, "blocks": [3, 9]}]}

`shape` (numbers) and `strides` (bytes) are those of the values' half of a layer's cache: blocks,
tokens of a block, heads, channels.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from tools.demo.errors import DemoError

MAP_NAME = "kv-map-{rank}.json"


@dataclass(frozen=True, slots=True)
class ValueTensor:
    """The value half of one layer's cache in the rank's address space."""

    layer: int
    address: int
    strides: tuple[int, int, int, int]
    shape: tuple[int, int, int, int]

    def address_of(self, block: int, offset: int, head: int, channel: int) -> int:
        """Address of one number. DemoError: outside the tensor."""
        index = (block, offset, head, channel)
        if not all(0 <= i < size for i, size in zip(index, self.shape, strict=True)):
            raise DemoError(f"no number {index} in the cache of layer {self.layer}: {self.shape}")
        return self.address + sum(i * s for i, s in zip(index, self.strides, strict=True))


@dataclass(frozen=True, slots=True)
class MappedSession:
    session_id: str
    positions: int
    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """One number of one row, and where it lies."""

    pid: int
    rank: int
    session_id: str
    layer: int
    position: int
    address: int


@dataclass(frozen=True, slots=True)
class KvMap:
    """The first KV group of one rank as of one step."""

    pid: int
    rank: int
    step: int
    block_size: int
    tensors: tuple[ValueTensor, ...]
    sessions: tuple[MappedSession, ...]

    def session(self, request_id: str) -> MappedSession:
        """The session of a client's request: the engine adds to the request's id."""
        for session in self.sessions:
            if session.session_id.startswith(request_id):
                return session
        known = ", ".join(session.session_id for session in self.sessions) or "none"
        raise DemoError(f"request {request_id} is not in the KV map of step {self.step}: {known}")

    def target(self, request_id: str, layer: int, position: int) -> Target:
        """The first number of the first head of a row that the session holds."""
        session = self.session(request_id)
        if not 0 <= position < session.positions:
            raise DemoError(
                f"session {session.session_id} holds positions below {session.positions}, "
                f"not {position}"
            )
        block = session.blocks[position // self.block_size]
        tensor = next((t for t in self.tensors if t.layer == layer), None)
        if tensor is None:
            raise DemoError(f"layer {layer} is not in the KV map")
        address = tensor.address_of(block, position % self.block_size, 0, 0)
        return Target(self.pid, self.rank, session.session_id, layer, position, address)


def read_kv_map(folder: Path, rank: int) -> KvMap:
    """The newest map of a rank. DemoError: it wrote none."""
    path = folder / MAP_NAME.format(rank=rank)
    if not path.exists():
        raise DemoError(f"rank {rank} wrote no {path.name}: is the engine in drill mode?")
    found = json.loads(path.read_text())
    group = found["groups"][0]
    return KvMap(
        pid=found["pid"],
        rank=found["rank"],
        step=found["step"],
        block_size=group["block_size"],
        tensors=tuple(
            ValueTensor(t["layer"], t["address"], tuple(t["strides"]), tuple(t["shape"]))
            for t in group["layers"]
        ),
        sessions=tuple(
            MappedSession(s["session_id"], s["positions"], tuple(s["blocks"]))
            for s in found["sessions"]
            if s["kv_group"] == group["kv_group"]
        ),
    )
