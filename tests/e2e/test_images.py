"""A bit flipped in a real image is the bit that the restored process sees, and no other one."""

import sys
import time
from pathlib import Path

import pytest

from tools.demo.criu import Criu
from tools.demo.errors import DemoError
from tools.demo.images import open_process_image
from tools.demo.memory import flip_bit_in_memory, read_memory
from tools.demo.processes import ProcessTree, start
from tools.demo.waiting import wait_for

pytestmark = pytest.mark.criu

SIZE = 3 * 1024 * 1024
# Holds a block of known bytes, says where, then counts for as long as it lives.
PROGRAM = f"""
import ctypes, mmap, time
block = mmap.mmap(-1, {SIZE}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
block.write(bytes(i % 251 for i in range({SIZE})))
print("at", ctypes.addressof(ctypes.c_char.from_buffer(block)), flush=True)
while True:
    time.sleep(0.01)
"""


@pytest.fixture
def victim(tmp_path: Path):
    tree = start([sys.executable, "-c", PROGRAM], {}, tmp_path / "victim.log")
    yield tree
    tree.end()


def block_address(tree: ProcessTree) -> int:
    words = wait_for(lambda: tree.log.read_text().split(), "the victim's address", 10)
    return int(words[1])


def test_restored_process_sees_the_flipped_bit_and_only_it(
    victim: ProcessTree, criu: Criu, tmp_path: Path
):
    address = block_address(victim)
    before = read_memory(victim.root, address, SIZE)
    checkpoint = criu.dump(victim, tmp_path / "images")
    image = open_process_image(checkpoint.images, victim.root)
    assert image.read(address + 5000, 100) == before[5000:5100]

    assert image.flip_bit(address + 2_000_000, 6) == (
        before[2_000_000],
        before[2_000_000] ^ 0x40,
    )
    criu.restore(checkpoint)

    after = read_memory(victim.root, address, SIZE)
    assert [i for i in range(SIZE) if after[i] != before[i]] == [2_000_000]
    assert after[2_000_000] == before[2_000_000] ^ 0x40


def test_address_outside_the_image_is_an_error(victim: ProcessTree, criu: Criu, tmp_path: Path):
    block_address(victim)
    checkpoint = criu.dump(victim, tmp_path / "images")
    image = open_process_image(checkpoint.images, victim.root)
    with pytest.raises(DemoError, match="holds no page"):
        image.read(0x1000, 1)
    with pytest.raises(DemoError, match="not in it"):
        open_process_image(checkpoint.images, victim.root + 1)


def test_flip_in_living_memory(victim: ProcessTree):
    address = block_address(victim)
    flip_bit_in_memory(victim.root, address + 1, 0)
    assert read_memory(victim.root, address, 3) == bytes([0, 0, 2])


def test_pages_that_the_map_does_not_list_are_noticed(
    victim: ProcessTree, criu: Criu, tmp_path: Path
):
    block_address(victim)
    checkpoint = criu.dump(victim, tmp_path / "images")
    pages = next(checkpoint.images.glob("pages-*.img"))
    pages.write_bytes(pages.read_bytes()[:-4096])
    with pytest.raises(DemoError, match="has not the"):
        open_process_image(checkpoint.images, victim.root)


def test_nothing_is_left_of_an_ended_tree(victim: ProcessTree):
    block_address(victim)
    victim.end()
    assert not Path(f"/proc/{victim.root}").exists()
    began = time.monotonic()
    victim.end()
    assert time.monotonic() - began < 1
