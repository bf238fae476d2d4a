"""Memory of a living process that stands still, through /proc."""

from pathlib import Path


def read_memory(pid: int, address: int, size: int) -> bytes:
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(size)


def flip_bit_in_memory(pid: int, address: int, bit: int) -> tuple[int, int]:
    """Flips bit 0 to 7 of the byte at `address`; the byte before and after."""
    before = read_memory(pid, address, 1)[0]
    after = before ^ 1 << bit
    with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
        memory.seek(address)
        memory.write(bytes([after]))
    return before, after
