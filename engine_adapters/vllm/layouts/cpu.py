"""vLLM's CPU attention: [blocks, heads, block_size, 2 * head_size], K transposed inside.

The tensor's shape does not say how a (block, head) is filled: its first half is K as
[head_size, block_size], its second V as [block_size, head_size] (instruction set "vec": fp32,
fp16, bf16). Other instruction sets fill it differently; `layout_probe` asks the engine's own
kernel before this module is trusted.
"""

import torch

from engine_adapters.vllm.layouts.rows import Parts


def transposed_key(tensor: torch.Tensor) -> Parts:
    """Parts of [B, H, N, 2 * D] as the CPU kernels fill it. `tensor` contiguous within a block."""
    blocks, heads, block_size, channels = tensor.shape
    size = channels // 2
    key = tensor.view(blocks, heads, 2, size, block_size)[:, :, 0]
    value = tensor.view(blocks, heads, 2, block_size, size)[:, :, 1]
    return key.permute(0, 3, 1, 2), value.permute(0, 2, 1, 3)
