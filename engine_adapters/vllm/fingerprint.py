"""vLLM's part of the fingerprint: what a checkpoint of this worker is valid for."""

from collections.abc import Callable
from typing import Any

from engine_adapters.fingerprint import UNKNOWN
from engine_adapters.report.log import note_error


def engine_fingerprint(vllm_config: Any, engine_version: str) -> dict[str, str]:
    """Names and values as types.proto lists them; `x_` names are this adapter's own.

    A name that does not apply is absent. One that this version keeps elsewhere is "unknown", and
    no other name is lost by it.
    """
    readers: dict[str, Callable[[], Any]] = {
        "engine": lambda: "vllm",
        "engine_version": lambda: engine_version,
        "model": lambda: vllm_config.model_config.model,
        "model_revision": lambda: vllm_config.model_config.revision,
        "dtype": lambda: str(vllm_config.model_config.dtype).removeprefix("torch."),
        "kv_dtype": lambda: vllm_config.cache_config.cache_dtype,
        "quantization": lambda: vllm_config.model_config.quantization,
        "tensor_parallel": lambda: vllm_config.parallel_config.tensor_parallel_size,
        "pipeline_parallel": lambda: vllm_config.parallel_config.pipeline_parallel_size,
        "block_size": lambda: vllm_config.cache_config.block_size,
        "x_max_model_len": lambda: vllm_config.model_config.max_model_len,
        "x_prefix_caching": lambda: vllm_config.cache_config.enable_prefix_caching,
        "x_async_scheduling": lambda: vllm_config.scheduler_config.async_scheduling,
        "x_speculative": lambda: _speculative(vllm_config),
    }
    values = {name: _read(name, reader) for name, reader in readers.items()}
    return {name: value for name, value in values.items() if value is not None}


def _read(name: str, reader: Callable[[], Any]) -> str | None:
    try:
        value = reader()
    except Exception as error:  # noqa: BLE001 - the engine's objects differ between versions
        note_error(f"fingerprint: {name} cannot be read", error)
        return UNKNOWN
    return None if value is None else str(value)


def _speculative(vllm_config: Any) -> str | None:
    speculative = vllm_config.speculative_config
    if speculative is None:
        return None
    return f"{speculative.method}:{speculative.num_speculative_tokens}"
