"""vLLM's part of the fingerprint: what a checkpoint of this worker is valid for."""

from typing import Any


def engine_fingerprint(vllm_config: Any, engine_version: str) -> dict[str, str]:
    """Names and values as types.proto lists them; `x_` names are this adapter's own."""
    model, cache = vllm_config.model_config, vllm_config.cache_config
    parallel = vllm_config.parallel_config
    values: dict[str, Any] = {
        "engine": "vllm",
        "engine_version": engine_version,
        "model": model.model,
        "model_revision": getattr(model, "revision", None),
        "dtype": str(model.dtype).removeprefix("torch."),
        "kv_dtype": cache.cache_dtype,
        "quantization": getattr(model, "quantization", None),
        "tensor_parallel": parallel.tensor_parallel_size,
        "pipeline_parallel": parallel.pipeline_parallel_size,
        "block_size": cache.block_size,
        "x_max_model_len": model.max_model_len,
        "x_prefix_caching": cache.enable_prefix_caching,
        "x_async_scheduling": vllm_config.scheduler_config.async_scheduling,
        "x_speculative": _speculative(vllm_config),
    }
    # A name that does not apply is absent.
    return {name: str(value) for name, value in values.items() if value is not None}


def _speculative(vllm_config: Any) -> str | None:
    speculative = getattr(vllm_config, "speculative_config", None)
    if speculative is None:
        return None
    return f"{speculative.method}:{speculative.num_speculative_tokens}"
