"""Tensors and modules against an independent recomputation from plain bytes."""

import pytest
import torch
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_adapters.digest import tensors
from engine_adapters.digest.errors import UnreadableTensorError
from engine_adapters.digest.rows import row_digests
from engine_adapters.digest.spec import LAYER_ODD, MASK64, TENSOR_ROW_BYTES, mix64
from engine_adapters.digest.tensors import module_digests, named_digests, tensor_digest

DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.bool,
    torch.complex64,
]


def recompute(data: bytes, head: str) -> tuple[int, int]:
    starts = range(0, len(data), TENSOR_ROW_BYTES)
    rows = [xxhash.xxh3_64_intdigest(data[i : i + TENSOR_ROW_BYTES]) for i in starts]
    total = sum(mix64(row + (i + 1) * LAYER_ODD) for i, row in enumerate(rows)) & MASK64
    inner = mix64(total + len(data) * LAYER_ODD)
    return mix64(inner + xxhash.xxh3_64_intdigest(head.encode())), len(data)


def random_bytes(count: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count,), dtype=torch.uint8, generator=generator)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(dtype):
    data = random_bytes(24_000) & (1 if dtype == torch.bool else 255)
    t = data.view(dtype).view(10, -1)
    name = str(dtype).removeprefix("torch.")
    expected = recompute(bytes(data.tolist()), f"{name}[10,{2400 // dtype.itemsize}]")
    assert tensor_digest(t) == expected


@pytest.mark.parametrize("size", [0, 1, 8191, 8192, 8193, 16384, 20000, 100_000])
def test_any_size(size):
    data = random_bytes(size)
    assert tensor_digest(data) == recompute(bytes(data.tolist()), f"uint8[{size}]")


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)])
def test_empty_tensors_differ_by_shape_only(shape):
    head = f"float32[{','.join(map(str, shape))}]"
    assert tensor_digest(torch.empty(shape)) == recompute(b"", head)


def test_scalars():
    t = torch.tensor(1, dtype=torch.int16)
    assert tensor_digest(t) == recompute(b"\1\0", "int16[]")


@settings(deadline=None, max_examples=60)
@given(
    shape=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    order=st.randoms(use_true_random=False),
    step=st.integers(1, 3),
    chunk=st.sampled_from([64, 5000, 8192, 40_000, 4 << 20]),
    dtype=st.sampled_from([torch.uint8, torch.int16, torch.float32]),
)
def test_strides_do_not_matter(shape, order, step, chunk, dtype):
    count = torch.Size(shape).numel() * step
    store = random_bytes(count * dtype.itemsize).view(dtype)
    dimensions = list(range(len(shape)))
    order.shuffle(dimensions)
    t = store.view(*shape[:-1], shape[-1] * step)[..., ::step].permute(dimensions)
    plain = t.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensors, "CHUNK_BYTES", chunk)
        found = tensor_digest(t)
    assert found == recompute(bytes(plain.tolist()), tensors.header(t))


def test_pieces_of_a_strided_tensor_stay_small(monkeypatch):
    monkeypatch.setattr(tensors, "CHUNK_BYTES", 16_384)
    t = random_bytes(300 * 7 * 500).view(300, 7, 500).permute(2, 1, 0)
    pieces = list(tensors._pieces(t))
    assert max(piece.numel() for piece in pieces) <= 16_384
    assert torch.equal(torch.cat(pieces), t.contiguous().view(-1))


def test_a_single_element_with_a_stride_is_read():
    t = torch.tensor([258, 0], dtype=torch.int16)[::2]
    assert tensor_digest(t) == recompute(b"\2\1", "int16[1]")


def test_expanded_and_overlapping_views_count_what_they_show():
    t = torch.tensor([1, 2, 3], dtype=torch.uint8)
    shown = t.expand(2, 3)
    assert tensor_digest(shown) == recompute(bytes([1, 2, 3, 1, 2, 3]), "uint8[2,3]")
    windows = t.as_strided((2, 2), (1, 1))
    assert tensor_digest(windows) == recompute(bytes([1, 2, 2, 3]), "uint8[2,2]")


@pytest.mark.parametrize("size", [0, 100, 8192, 8193, 50_000])
def test_the_digest_does_not_depend_on_which_implementation_hashes(size, monkeypatch):
    data = random_bytes(size)
    expected = tensor_digest(data)
    monkeypatch.setattr(tensors, "stock_row_digests", row_digests)
    assert tensor_digest(data) == expected


def test_conjugate_and_negative_views_are_resolved():
    t = torch.randn(50, dtype=torch.complex64)
    assert tensor_digest(t.conj()) == tensor_digest(t.conj().resolve_conj().clone())
    assert tensor_digest(t.conj().imag) == tensor_digest(-t.imag)
    lazily = torch._neg_view(torch.arange(50))
    assert lazily.is_neg()
    assert tensor_digest(lazily) == tensor_digest(-torch.arange(50))


def test_every_flip_changes_the_digest():
    data = random_bytes(8192 + 40)
    seen = {tensor_digest(data)}
    places = [*range(80), *range(8190 * 8, (8192 + 40) * 8)]
    for bit in places:
        data[bit // 8] ^= 1 << bit % 8
        seen.add(tensor_digest(data))
        data[bit // 8] ^= 1 << bit % 8
    assert len(seen) == 1 + len(places)


def test_order_dtype_shape_and_length_matter():
    data = random_bytes(3 * 8192)
    rows = data.view(3, 8192)
    variants = [
        data,
        rows,
        rows[[1, 0, 2]],
        data.view(torch.int8),
        data[:-1],
        torch.cat((data, torch.zeros(1, dtype=torch.uint8))),
    ]
    assert len({tensor_digest(t)[0] for t in variants}) == len(variants)


def unreadable() -> dict[str, torch.Tensor]:
    freed = torch.ones(5)
    freed.untyped_storage().resize_(0)
    with torch.sparse.check_sparse_tensor_invariants(enable=True):
        sparse = torch.sparse_coo_tensor(torch.tensor([[0]]), torch.tensor([1.0]))
    return {
        "meta": torch.empty(3, device="meta"),
        "sparse": sparse,
        "freed": freed,
        "lazy": torch.nn.UninitializedParameter(),
    }


@pytest.mark.parametrize("kind", ["meta", "sparse", "freed", "lazy"])
def test_tensors_without_bytes_are_refused(kind):
    with pytest.raises(UnreadableTensorError):
        tensor_digest(unreadable()[kind])


class Wrapper(torch.Tensor):
    """A tensor that holds others, as distributed and quantised tensors do."""

    @staticmethod
    def __new__(cls) -> torch.Tensor:
        return torch.Tensor._make_wrapper_subclass(cls, (3,))

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError(func)


def test_tensors_made_of_others_are_refused():
    with pytest.raises(UnreadableTensorError, match="Wrapper"):
        tensor_digest(Wrapper())


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(5, 4)
        self.head = torch.nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight
        self.norm = torch.nn.Parameter(torch.ones(4), requires_grad=False)
        self.register_buffer("scale", torch.tensor(2.0))
        self.register_buffer("rotary", torch.arange(6.0), persistent=False)
        self.register_buffer("absent", None)


def test_modules_are_reported_whole_and_in_order():
    model = Model()
    found = module_digests(model)
    assert [item.name for item in found] == [
        "embed.weight",
        "head.weight",
        "norm",
        "rotary",
        "scale",
    ]
    by_name = {item.name: item for item in found}
    assert by_name["embed.weight"].digest == by_name["head.weight"].digest
    assert by_name["rotary"].size == 24
    for item in found:
        t = model.get_parameter(item.name) if "." in item.name else getattr(model, item.name)
        assert (item.digest, item.size) == tensor_digest(t)


@pytest.mark.parametrize("name", ["embed.weight", "norm", "rotary", "scale"])
def test_a_changed_tensor_is_named(name):
    model = Model()
    before = {item.name: item.digest for item in module_digests(model)}
    tensor = dict([*model.named_parameters(), *model.named_buffers()])[name]
    with torch.no_grad():
        tensor.view(-1)[0] += 1
    after = {item.name: item.digest for item in module_digests(model)}
    shared = {"embed.weight", "head.weight"}
    changed = {key for key in before if before[key] != after[key]}
    assert changed == (shared if name in shared else {name})


def test_a_shared_tensor_is_read_once(monkeypatch):
    read = []
    real = tensors.tensor_digest
    monkeypatch.setattr(tensors, "tensor_digest", lambda t: read.append(t) or real(t))
    module_digests(Model())
    assert len(read) == 4


def test_views_of_one_storage_stand_for_themselves():
    store = torch.arange(8, dtype=torch.uint8)
    found = named_digests([("b", store[4:]), ("a", store[:4])])
    assert [item.name for item in found] == ["a", "b"]
    assert (found[0].digest, found[0].size) == recompute(bytes([0, 1, 2, 3]), "uint8[4]")
    assert (found[1].digest, found[1].size) == recompute(bytes([4, 5, 6, 7]), "uint8[4]")


def test_the_refusal_names_the_tensor():
    with torch.device("meta"):
        model = Model()
    with pytest.raises(UnreadableTensorError, match=r"embed\.weight: .*meta"):
        module_digests(model)
