"""The same digests on an accelerator as on the CPU. Needs one."""

import pytest
import torch

from engine_adapters.digest.rows import row_digests, token_digests
from engine_adapters.digest.tensors import tensor_digest

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm GPU")

LENGTHS = [*range(260), 511, 512, 768, 1023, 1024, 1025, 1089, 2048, 4096, 8192, 9000]


def random_rows(*shape: int) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8)


def test_rows_of_every_kind_of_length():
    for length in LENGTHS:
        rows = random_rows(3, length)
        assert torch.equal(row_digests(rows.cuda()).cpu(), row_digests(rows)), length


def test_strided_views_across_chunks():
    # Above the chunk of a device, so that it is cut.
    store = random_rows(500, 2, 30, 1600)
    view = store.cuda().transpose(1, 2)[..., 5:773]
    assert torch.equal(row_digests(view).cpu(), row_digests(store.transpose(1, 2)[..., 5:773]))


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_tokens_do_not_wait_for_the_device():
    rows = random_rows(8, 30, 768)
    shares = (8, 8, 7, 7)
    on_device = rows.cuda()
    token_digests(on_device, range(30), shares)  # makes the tables
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = token_digests(on_device, range(30), shares)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(found.cpu(), token_digests(rows, range(30), shares))


def test_tokens_can_be_captured_in_a_graph():
    shares = (8, 8, 7, 7)
    static = random_rows(8, 30, 768).cuda()
    token_digests(static, range(30), shares)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = token_digests(static, range(30), shares)
    rows = random_rows(8, 30, 768)
    static.copy_(rows)
    graph.replay()
    assert torch.equal(found.cpu(), token_digests(rows, range(30), shares))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.int8])
def test_tensors(dtype):
    t = random_rows(1000, 3000).view(dtype)
    assert tensor_digest(t.cuda()) == tensor_digest(t)
    assert tensor_digest(t.cuda().t()) == tensor_digest(t.t())
