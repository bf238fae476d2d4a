"""Length-checked binary packing for snapshots: little-endian, arrays with their length first."""

import struct

import numpy as np
from numpy.typing import NDArray

from sidecar.core.errors import SnapshotCorrupt

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class Packer:
    """Appends values to a buffer."""

    def __init__(self, magic: bytes, version: int) -> None:
        self._parts: list[bytes] = [magic, _U32.pack(version)]

    def u32(self, value: int) -> None:
        self._parts.append(_U32.pack(value))

    def u64(self, value: int) -> None:
        self._parts.append(_U64.pack(value))

    def text(self, value: str) -> None:
        encoded = value.encode()
        self.u32(len(encoded))
        self._parts.append(encoded)

    def optional_text(self, value: str | None) -> None:
        self.u32(0 if value is None else 1)
        if value is not None:
            self.text(value)

    def u32s(self, values: NDArray[np.uint32]) -> None:
        self.u32(len(values))
        self._parts.append(values.astype("<u4", copy=False).tobytes())

    def u64s(self, values: NDArray[np.uint64]) -> None:
        """Any shape; only the number of elements is stored."""
        self.u32(values.size)
        self._parts.append(values.astype("<u8", copy=False).tobytes())

    def u8s(self, values: NDArray[np.uint8]) -> None:
        self.u32(len(values))
        self._parts.append(values.tobytes())

    def done(self) -> bytes:
        return b"".join(self._parts)


class Unpacker:
    """Reads what a Packer of the same magic and version wrote.

    Raises SnapshotCorrupt for another magic, version, a length beyond the end or bytes left over.
    """

    def __init__(self, data: bytes, magic: bytes, version: int) -> None:
        self._data = memoryview(data)
        self._at = 0
        if bytes(self._take(len(magic))) != magic:
            raise SnapshotCorrupt(f"snapshot does not begin with {magic!r}")
        found = self.u32()
        if found != version:
            raise SnapshotCorrupt(f"snapshot version is {found}, this program reads {version}")

    def _take(self, size: int) -> memoryview:
        end = self._at + size
        if end > len(self._data):
            raise SnapshotCorrupt(
                f"snapshot ends at byte {len(self._data)}, {size} bytes expected at {self._at}"
            )
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def u32(self) -> int:
        return int(_U32.unpack(self._take(4))[0])

    def u64(self) -> int:
        return int(_U64.unpack(self._take(8))[0])

    def text(self) -> str:
        raw = bytes(self._take(self.u32()))
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise SnapshotCorrupt(f"text in snapshot is not UTF-8: {raw[:32]!r}") from error

    def optional_text(self) -> str | None:
        present = self.u32()
        if present > 1:
            raise SnapshotCorrupt(f"presence mark in snapshot is {present}, expected 0 or 1")
        return self.text() if present else None

    def u32s(self) -> NDArray[np.uint32]:
        return np.frombuffer(self._take(4 * self.u32()), dtype="<u4").astype(np.uint32)

    def u64s(self) -> NDArray[np.uint64]:
        return np.frombuffer(self._take(8 * self.u32()), dtype="<u8").astype(np.uint64)

    def u8s(self) -> NDArray[np.uint8]:
        return np.frombuffer(self._take(self.u32()), dtype=np.uint8).copy()

    def end(self) -> None:
        if self._at != len(self._data):
            raise SnapshotCorrupt(f"{len(self._data) - self._at} bytes left over in snapshot")
