"""Where a byte of a dumped process lies in its image, and how to change one bit of it there.

An image keeps a process's private memory in two files: `pagemap-PID.img`, a list of ranges of
virtual pages in protocol buffer framing, and `pages-ID.img`, the bytes of those ranges one
after the other. Field numbers are those of CRIU's images/pagemap.proto.
"""

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.demo.errors import DemoError

PAGE = mmap.PAGESIZE
# Two magic numbers (image format, image type) before the first entry.
HEADER_BYTES = 8
VARINT, LENGTH_DELIMITED = 0, 2
HEAD_PAGES_ID = 1
ENTRY_VADDR, ENTRY_PAGES, ENTRY_IN_PARENT, ENTRY_FLAGS, ENTRY_PAGES_64 = 1, 2, 3, 4, 5
FLAG_PRESENT = 4


@dataclass(frozen=True, slots=True)
class PageRun:
    """Pages that lie together, in memory at `address` and in the pages file at `offset`."""

    address: int
    pages: int
    offset: int

    def holds(self, address: int) -> bool:
        return self.address <= address < self.address + self.pages * PAGE


@dataclass(frozen=True, slots=True)
class ProcessImage:
    """The private memory of one process in an image."""

    pages_file: Path
    runs: tuple[PageRun, ...]

    def offset_of(self, address: int) -> int:
        """Offset in the pages file. DemoError: the image does not hold this address."""
        for run in self.runs:
            if run.holds(address):
                return run.offset + address - run.address
        raise DemoError(f"the image holds no page for address {address:#x}")

    def read(self, address: int, size: int) -> bytes:
        """Bytes of one page run."""
        with self.pages_file.open("rb") as pages:
            pages.seek(self.offset_of(address))
            return pages.read(size)

    def flip_bit(self, address: int, bit: int) -> tuple[int, int]:
        """Flips bit 0 to 7 of the byte at `address`; the byte before and after."""
        offset = self.offset_of(address)
        with self.pages_file.open("r+b") as pages:
            pages.seek(offset)
            before = pages.read(1)[0]
            after = before ^ 1 << bit
            pages.seek(offset)
            pages.write(bytes([after]))
        return before, after


def open_process_image(images: Path, pid: int) -> ProcessImage:
    """The memory of process `pid` in the image. DemoError: not there or not as expected."""
    path = images / f"pagemap-{pid}.img"
    if not path.exists():
        raise DemoError(f"no {path.name} in the image: process {pid} is not in it")
    entries = _entries(path.read_bytes()[HEADER_BYTES:])
    head = next(entries, None)
    if head is None:
        raise DemoError(f"{path.name} is empty")
    runs = []
    offset = 0
    for entry in entries:
        pages = entry.get(ENTRY_PAGES_64) or entry.get(ENTRY_PAGES, 0)
        # Without flags (old images) every range is present unless the parent image has it.
        present = bool(entry.get(ENTRY_FLAGS, FLAG_PRESENT) & FLAG_PRESENT)
        if present and not entry.get(ENTRY_IN_PARENT):
            runs.append(PageRun(entry[ENTRY_VADDR], pages, offset))
            offset += pages * PAGE
    pages_file = images / f"pages-{head[HEAD_PAGES_ID]}.img"
    if pages_file.stat().st_size != offset:
        raise DemoError(f"{pages_file.name} has not the {offset} bytes that {path.name} lists")
    return ProcessImage(pages_file, tuple(runs))


def _entries(data: bytes) -> Iterator[dict[int, int]]:
    """The integer fields of each message; a u32 length stands before each."""
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        at += 4
        yield dict(_fields(data[at : at + size]))
        at += size


def _fields(message: bytes) -> Iterator[tuple[int, int]]:
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = _varint(message, at)
            yield number, value
        elif kind == LENGTH_DELIMITED:
            size, at = _varint(message, at)
            at += size
        else:
            raise DemoError(f"field {number} of a page map has wire type {kind}, not an integer")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
