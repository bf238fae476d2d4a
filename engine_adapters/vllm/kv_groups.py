"""From vLLM's KV cache configuration to what a rank can digest, group by group."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from engine_adapters.digest.spec import split_layers
from engine_adapters.report.identity import KvGroupSpec
from engine_adapters.vllm.errors import UnsupportedLayoutError, UnsupportedSettingError
from engine_adapters.vllm.layout_probe import check_cpu_layout
from engine_adapters.vllm.layouts import AttentionShape, make_layout
from engine_adapters.vllm.row_digester import RowDigester, TorchDigester

# Kinds of layer whose rows lie one per token, by the class of their KV cache spec.
_FULL = ("FullAttentionSpec", "MLAAttentionSpec")
_WINDOW = ("SlidingWindowSpec", "SlidingWindowMLASpec")
_LAYER_NUMBER = re.compile(r"(?:^|\.)(\d+)(?=\.|$)")


@dataclass(frozen=True, slots=True)
class ObservedGroup:
    """One KV group of this rank and what digests its rows."""

    spec: KvGroupSpec
    digester: RowDigester


def observe_groups(
    vllm_config: Any,
    kv_cache_config: Any,
    kv_caches: Mapping[str, torch.Tensor],
    layer_groups: int,
) -> list[ObservedGroup]:
    """All KV groups of this rank. All or none: a group left out would pass unchecked.

    Raises:
        UnsupportedLayoutError, UnsupportedSettingError: naming what cannot be observed.

    """
    check_settings(vllm_config)
    cache = _Cache(vllm_config, kv_cache_config.num_blocks, kv_caches)
    return [
        _observe(index, group, cache, layer_groups)
        for index, group in enumerate(kv_cache_config.kv_cache_groups)
        if any(name in kv_caches for name in group.layer_names)
    ]


def check_settings(vllm_config: Any) -> None:
    """Raises UnsupportedSettingError where a slot is not block id times block size plus offset."""
    parallel = vllm_config.parallel_config
    for setting in ("decode_context_parallel_size", "prefill_context_parallel_size"):
        value = getattr(parallel, setting, 1)
        if value > 1:
            raise UnsupportedSettingError(
                setting, value, "rows are spread over ranks there, which is not observed yet"
            )


@dataclass(frozen=True, slots=True)
class _Cache:
    """What the engine handed over."""

    vllm_config: Any
    blocks: int
    tensors: Mapping[str, torch.Tensor]


def _observe(index: int, group: Any, cache: _Cache, layer_groups: int) -> ObservedGroup:
    kv_caches = cache.tensors
    names = [name for name in group.layer_names if name in kv_caches]
    numbers = layer_numbers(names)
    names.sort(key=numbers.__getitem__)
    spec = _layer_spec(group.kv_cache_spec)
    shape = attention_shape(names[0], spec)
    layout = make_layout({name: kv_caches[name] for name in names}, shape)
    if layout.device.type == "cpu":
        layers = cache.vllm_config.compilation_config.static_forward_context
        check_cpu_layout(names[0], layers.get(names[0]), kv_caches[names[0]], shape)
    layers_of_group = [numbers[name] for name in names]
    digest_layers = split_layers(len(names), layer_groups or len(names))
    return ObservedGroup(
        spec=KvGroupSpec(
            group=index,
            block_size=shape.block_size,
            blocks=cache.blocks,
            layers=layers_of_group,
            digest_layers=digest_layers,
            row_bytes=layout.row_bytes,
            sliding_window=_window(spec),
        ),
        digester=TorchDigester(layout, layers_of_group, digest_layers),
    )


def layer_numbers(names: Sequence[str]) -> dict[str, int]:
    """The model's layer number of each attention layer, from its name; where names do not say
    (or say it twice), their order.
    """
    found = {name: _LAYER_NUMBER.search(name) for name in names}
    numbers = {name: int(match.group(1)) for name, match in found.items() if match}
    if len(set(numbers.values())) == len(names):
        return numbers
    return {name: i for i, name in enumerate(names)}


def _layer_spec(spec: Any) -> Any:
    """Layers of one type but of different size share a spec that lists them."""
    of_layers = getattr(spec, "kv_cache_specs", None)
    return next(iter(of_layers.values())) if of_layers else spec


def attention_shape(layer: str, spec: Any) -> AttentionShape:
    """What the layer's rows look like. Raises UnsupportedLayoutError for other kinds of layer."""
    kind = type(spec).__name__
    if kind not in (*_FULL, *_WINDOW):
        raise UnsupportedLayoutError(
            layer, f"a {kind}", f"only {', '.join((*_FULL, *_WINDOW))} are"
        )
    if getattr(spec, "tokens_per_state", 1) != 1 or (
        getattr(spec, "state_content_bytes", None) is not None and "MLA" not in kind
    ):
        raise UnsupportedLayoutError(
            layer, f"{kind} that packs its content", "use an unquantised KV cache"
        )
    return AttentionShape(
        block_size=spec.block_size,
        heads=getattr(spec, "num_heads", spec.num_kv_heads),
        head_size=spec.head_size,
        head_size_v=getattr(spec, "head_size_v", None) or spec.head_size,
        latent="MLA" in kind,
    )


def _window(spec: Any) -> int:
    # A full-attention spec may name a window too; its blocks are never given up.
    return int(spec.sliding_window) if type(spec).__name__ in _WINDOW else 0
