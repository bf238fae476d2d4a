"""Opt-in (TOKENWITNESS_CPU_EXACT=1): makes vLLM's CPU engine batch invariant.

Two things make a token depend on who shares its batch on the CPU. Attention splits KV by the
load: VLLM_CPU_ATTN_SPLIT_KV=0 turns that off. And a matrix product of one row takes another
kernel than one of several: here one row is padded to two. vLLM's own VLLM_BATCH_INVARIANT
crashes on the CPU engine of 0.32.

Checked on 0.32, fp32 and bf16, eager: KV bit-identical alone, in batches and on re-prefill.
It costs throughput with one stream; it is for references and demonstrations.
"""

import functools
import logging
import os
from collections.abc import Callable
from typing import Any

import torch

from engine_adapters.report.log import log_once

SPLIT_KV = "VLLM_CPU_ATTN_SPLIT_KV"
_MARK = "_tokenwitness_exact"


def install() -> None:
    """Wraps `dispatch_cpu_unquantized_gemm`, which gives each layer its matrix product.

    vLLM 0.26 to 0.32: called by name from its module while weights are processed, so it must be
    replaced before the model is loaded. Calling it twice changes nothing more.
    """
    from vllm.model_executor.layers import utils  # noqa: PLC0415 - engine

    dispatch = utils.dispatch_cpu_unquantized_gemm
    if getattr(dispatch, _MARK, False):
        return
    os.environ.setdefault(SPLIT_KV, "0")

    @functools.wraps(dispatch)
    def exact_dispatch(layer: Any, *args: Any, **kwargs: Any) -> None:
        dispatch(layer, *args, **kwargs)
        if hasattr(layer, "cpu_linear"):
            layer.cpu_linear = two_rows_or_more(layer.cpu_linear)

    setattr(exact_dispatch, _MARK, True)
    utils.dispatch_cpu_unquantized_gemm = exact_dispatch
    log_once("exact-cpu", "CPU engine made batch invariant (slower)", level=logging.INFO)


def two_rows_or_more(linear: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The same product, computed on two equal rows where there is one."""

    @functools.wraps(linear)
    def exact(x: torch.Tensor, weight: torch.Tensor, bias: Any = None) -> torch.Tensor:
        rows = x.reshape(-1, x.shape[-1])
        if len(rows) != 1:
            return linear(x, weight, bias)
        return linear(rows.expand(2, -1).contiguous(), weight, bias)[:1].reshape(*x.shape[:-1], -1)

    return exact
