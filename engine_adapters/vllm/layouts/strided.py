"""Layouts that are views by strides: every GPU layout of vLLM 0.26 to 0.33 for attention.

- packed: logical [B, H, N, C], K and V share C (`head_size + head_size_v`); the physical order
  (LBNHC, LHBNC, BLHNC, ...) is in the strides;
- pair: K and V in two tensors or in the first (or second) dimension of one;
- latent: MLA, [B, N, C] with one row per token and no heads.
"""

import torch

from engine_adapters.vllm.layouts.rows import Parts


def packed(tensor: torch.Tensor, head_size: int) -> Parts:
    """Parts of a logical [B, H, N, C] view whose last dimension is K's channels, then V's."""
    by_token = tensor.permute(0, 2, 1, 3)
    return by_token[..., :head_size], by_token[..., head_size:]


def pair_nhd(key: torch.Tensor, value: torch.Tensor) -> Parts:
    """Parts of K and V that are [B, N, H, D] each."""
    return key, value


def pair_hnd(key: torch.Tensor, value: torch.Tensor) -> Parts:
    """Parts of K and V that are [B, H, N, D] each."""
    return key.permute(0, 2, 1, 3), value.permute(0, 2, 1, 3)


def latent(tensor: torch.Tensor) -> Parts:
    """The part of an MLA cache: [B, N, C], or [B, 1, N, C] as later versions register it."""
    if tensor.dim() == 4:
        return (tensor.permute(0, 2, 1, 3),)
    return (tensor.unsqueeze(2),)
