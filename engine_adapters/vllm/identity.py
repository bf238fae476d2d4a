"""Who the sources of a vLLM worker are: worker name, incarnation, ranks."""

import hashlib
from dataclasses import dataclass
from typing import Any

from engine_adapters.report.config import AdapterConfig
from engine_adapters.report.identity import SourceIdentity, SourceKind


@dataclass(frozen=True, slots=True)
class RankNumbers:
    """Where a rank stands: over the whole group, and in it by tensor and pipeline."""

    rank: int
    tensor: int
    pipeline: int


def incarnation_of(vllm_config: Any) -> str:
    """Equal in all processes of one life of one data-parallel replica, new at each start.

    Both ids are random and drawn by the front end before the engine's processes are started;
    the configuration carries them there. Nothing is drawn here, because scheduler and ranks
    live in different processes.
    """
    parts = (
        vllm_config.kv_transfer_config.engine_id,
        vllm_config.instance_id,
        _data_rank(vllm_config),
    )
    text = "\0".join(str(part) for part in parts)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def worker_name(config: AdapterConfig, vllm_config: Any) -> str:
    """The configured name; every data-parallel replica is a worker of its own."""
    if vllm_config.parallel_config.data_parallel_size > 1:
        return f"{config.worker}/dp{_data_rank(vllm_config)}"
    return config.worker


def scheduler_identity(config: AdapterConfig, vllm_config: Any) -> SourceIdentity:
    return SourceIdentity(
        worker=worker_name(config, vllm_config),
        incarnation=incarnation_of(vllm_config),
        kind=SourceKind.SCHEDULER,
        ranks=_ranks(vllm_config),
        data_rank=_data_rank(vllm_config),
    )


def rank_identity(config: AdapterConfig, vllm_config: Any, numbers: RankNumbers) -> SourceIdentity:
    return SourceIdentity(
        worker=worker_name(config, vllm_config),
        incarnation=incarnation_of(vllm_config),
        kind=SourceKind.RANK,
        ranks=_ranks(vllm_config),
        rank=numbers.rank,
        tensor_rank=numbers.tensor,
        pipeline_rank=numbers.pipeline,
        data_rank=_data_rank(vllm_config),
    )


def rank_numbers() -> RankNumbers:
    """The place of the process, as vLLM's parallel state has it."""
    from vllm.distributed.parallel_state import get_pp_group, get_tp_group  # noqa: PLC0415 - engine

    tensor, pipeline = get_tp_group(), get_pp_group()
    return RankNumbers(
        rank=pipeline.rank_in_group * tensor.world_size + tensor.rank_in_group,
        tensor=tensor.rank_in_group,
        pipeline=pipeline.rank_in_group,
    )


def _ranks(vllm_config: Any) -> int:
    parallel = vllm_config.parallel_config
    return int(parallel.tensor_parallel_size * parallel.pipeline_parallel_size)


def _data_rank(vllm_config: Any) -> int:
    return int(vllm_config.parallel_config.data_parallel_rank)
