"""Digests of what the model computes with besides KV: parameters and buffers.

Can miss: tensors that a module keeps as plain attributes, neither parameter nor registered
buffer. Name those that matter to `named_digests`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from engine_adapters.digest.errors import UnreadableTensorError
from engine_adapters.digest.reference import row_digest
from engine_adapters.digest.rows import row_digests
from engine_adapters.digest.spec import LAYER_ODD, MASK64, TENSOR_ROW_BYTES, mix64, signed
from engine_adapters.digest.stock import stock_row_digests
from engine_adapters.digest.words import mix64 as mix64_of

# What is copied at once of a tensor that does not lie contiguously, and hashed at once on a
# device. A multiple of the row.
CHUNK_BYTES = 4 << 20

_LAYER_ODD = signed(LAYER_ODD)


@dataclass(frozen=True, slots=True)
class NamedDigest:
    """Digest (unsigned, 64 bits) and size in bytes of one parameter or buffer."""

    name: str
    digest: int
    size: int


def tensor_digest(t: torch.Tensor) -> tuple[int, int]:
    """Digest and size in bytes of a tensor's logical contents, whatever its strides.

    The row-major bytes are cut in rows of 8,192 (the last may be shorter); dtype and shape
    are part of the digest. Reads one value back from the device, so it waits for the device.
    Scratch memory is bounded, about 64 MiB, except on the CPU, where a contiguous tensor
    needs next to none.

    Raises UnreadableTensorError for meta, sparse, quantised and opaque tensors, and for those
    whose memory was given back.
    """
    t = _plain(t)
    total = 0
    first_row = 0
    for piece in _whole_rows(_pieces(t)):
        total += _sum_of_rows(piece, first_row)
        first_row += -(-piece.numel() // TENSOR_ROW_BYTES)
    size = t.numel() * t.element_size()
    return mix64(mix64(total + size * LAYER_ODD) + row_digest(header(t).encode())), size


def header(t: torch.Tensor) -> str:
    """Dtype and shape as they go into the digest, for example `bfloat16[576,1536]`."""
    return f"{str(t.dtype).removeprefix('torch.')}[{','.join(map(str, t.shape))}]"


def module_digests(module: torch.nn.Module) -> list[NamedDigest]:
    """Digests of all parameters and all buffers, persistent or not, in order of their names.

    A tensor that the module holds under several names is reported under each of them.

    Raises UnreadableTensorError as `tensor_digest` does, with the name.
    """
    return named_digests(
        (
            *module.named_parameters(remove_duplicate=False),
            *module.named_buffers(remove_duplicate=False),
        ),
    )


def named_digests(tensors: Iterable[tuple[str, torch.Tensor]]) -> list[NamedDigest]:
    """Digests of named tensors, in order of their names. The same object is read once."""
    read: dict[int, tuple[int, int]] = {}
    found = []
    for name, t in sorted(tensors, key=lambda item: item[0]):
        if id(t) not in read:
            try:
                read[id(t)] = tensor_digest(t)
            except UnreadableTensorError as error:
                raise UnreadableTensorError(f"{name}: {error}") from error
        found.append(NamedDigest(name, *read[id(t)]))
    return found


def _plain(t: torch.Tensor) -> torch.Tensor:
    """The tensor without autograd, subclass, or a pending conjugation or negation."""
    if torch.nn.parameter.is_lazy(t):
        raise UnreadableTensorError(f"{type(t).__name__} has no shape yet; load the model first")
    if t.device.type == "meta":
        raise UnreadableTensorError(
            f"{header(t)} is on the meta device and has no bytes; load the model first",
        )
    # Subclasses that dispatch by themselves hold other tensors; a mere Parameter does not.
    wraps_others = type(t).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
    if wraps_others or t.layout != torch.strided or t.is_quantized:
        raise UnreadableTensorError(
            f"{header(t)} is a {type(t).__name__} of layout {t.layout} without plain bytes of "
            "its own; digest the tensors that it is made of",
        )
    if not _storage_reaches(t):
        raise UnreadableTensorError(
            f"{header(t)} has lost its memory (slept, offloaded or freed); bring it back first",
        )
    return t.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg()


def _storage_reaches(t: torch.Tensor) -> bool:
    if t.numel() == 0:
        return True
    steps = sum((n - 1) * stride for n, stride in zip(t.shape, t.stride(), strict=True))
    needed = (t.storage_offset() + steps + 1) * t.element_size()
    return bool(t.untyped_storage().nbytes() >= needed)


def _pieces(t: torch.Tensor) -> Iterator[torch.Tensor]:
    """The logical bytes in order, as uint8[n]; a piece that had to be copied is a small one."""
    size = t.numel() * t.element_size()
    if t.is_contiguous() or size <= CHUNK_BYTES:
        # Not view(-1): of a single element it may keep a stride that is not 1.
        yield t.contiguous().as_strided((t.numel(),), (1,)).view(torch.uint8)
        return
    step = max(1, CHUNK_BYTES * t.shape[0] // size)
    for part in t.split(step):
        yield from _pieces(part[0] if step == 1 and t.dim() > 1 else part)


def _whole_rows(pieces: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
    """The same bytes, cut so that every piece but the last is a number of whole rows."""
    rest: torch.Tensor | None = None
    for piece in pieces:
        joined = piece if rest is None else torch.cat((rest, piece))
        whole = joined.numel() - joined.numel() % TENSOR_ROW_BYTES
        if whole:
            yield joined[:whole]
        rest = joined[whole:] if whole < joined.numel() else None
    if rest is not None:
        yield rest


def _sum_of_rows(piece: torch.Tensor, first_row: int) -> int:
    """Sum of the mixed digests of the rows of uint8[n], the first of them being `first_row`."""
    # Rows this long cost more to hash than to call for.
    hash_rows = stock_row_digests if piece.device.type == "cpu" else row_digests
    whole = piece.numel() - piece.numel() % TENSOR_ROW_BYTES
    parts = [hash_rows(piece[:whole].view(-1, TENSOR_ROW_BYTES))]
    if whole < piece.numel():
        parts.append(hash_rows(piece[whole:].unsqueeze(0)))
    return _sum_mixed(torch.cat(parts), first_row)


def _sum_mixed(digests: torch.Tensor, first_row: int) -> int:
    last_row = first_row + digests.numel()
    weights = torch.arange(first_row + 1, last_row + 1, device=digests.device).mul_(_LAYER_ODD)
    return int(mix64_of(weights.add_(digests)).sum().item()) & MASK64
