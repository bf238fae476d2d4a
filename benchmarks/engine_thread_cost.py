"""What the vLLM adapter's own Python costs the engine's thread per step.

Drives the real hooks of both roles with a synthetic batch in steady decode: every session
computes one token per step and gets a block now and then. The digest itself and the sending
are not the engine thread's own Python: rows are digested by a stub, and the reporter puts
records in its real queue without a sidecar.

    PYTHON -m benchmarks.engine_thread_cost [--steps 2000] [--batch 1 64 256]

PYTHON is the engine environment's (tools/engine_env.sh vllm). Writes
benchmarks/results/engine-thread-cost.json.
"""

import argparse
import json
import statistics
import time
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np

from benchmarks.results_file import write_result
from engine_adapters.report.columns import Array
from engine_adapters.report.config import AdapterConfig
from engine_adapters.report.identity import KvGroupSpec, SourceIdentity, SourceKind
from engine_adapters.report.reporter import SourceReporter
from engine_adapters.vllm.kv_groups import ObservedGroup
from engine_adapters.vllm.live_sessions import LiveReader
from engine_adapters.vllm.metadata import StepDone
from engine_adapters.vllm.model_access import ModelAccess
from engine_adapters.vllm.rank_role import RankRole
from engine_adapters.vllm.row_digester import Slots
from engine_adapters.vllm.scheduler_role import SchedulerRole

BLOCK = 32
PROMPT = 500
SPEC = KvGroupSpec(
    group=0,
    block_size=BLOCK,
    blocks=1 << 20,
    layers=tuple(range(30)),
    digest_layers=(8, 8, 7, 7),
    row_bytes=768,
)


class NoDigest:
    """The kernel is not what is measured here."""

    digests = np.zeros((64 * 1024, 4), np.uint64)

    def after_step(self, slots: Slots) -> Array:
        return self.digests[: len(slots)]

    def now(self, slots: Slots) -> Array:
        return self.digests[: len(slots)]


@dataclass
class FakeRequest:
    """The attributes of vLLM's Request that the adapter reads."""

    request_id: str
    num_prompt_tokens: int
    _all_token_ids: list[int] = field(default_factory=list)
    num_computed_tokens: int = 0
    resumable: bool = False
    cache_salt: str | None = None
    sampling_params: object = None

    def __post_init__(self) -> None:
        self._all_token_ids = list(range(self.num_prompt_tokens))

    @property
    def all_token_ids(self) -> list[int]:
        return self._all_token_ids


class Steps:
    """Scheduler outputs as vLLM makes them: new lists and dictionaries in every step."""

    def __init__(self, batch: int) -> None:
        # Of many lengths, so that every step brings a block to some of them.
        self.requests = [
            FakeRequest(f"cmpl-{i:032x}-0-{i:08x}", PROMPT + i % BLOCK) for i in range(batch)
        ]
        self.blocks = 1

    def first(self) -> SimpleNamespace:
        new = [
            SimpleNamespace(
                req_id=r.request_id,
                block_ids=(self._take(-(-r.num_prompt_tokens // BLOCK)),),
                num_computed_tokens=0,
            )
            for r in self.requests
        ]
        counts = [r.num_prompt_tokens for r in self.requests]
        return self._output(new, [], [], [], counts)

    def next(self) -> SimpleNamespace:
        names = [r.request_id for r in self.requests]
        computed = [r.num_computed_tokens for r in self.requests]
        blocks = [(self._take(1),) if c % BLOCK == 0 else None for c in computed]
        return self._output([], names, blocks, computed, [1] * len(names))

    def advance(self) -> None:
        for request in self.requests:
            left = request.num_prompt_tokens - request.num_computed_tokens
            request.num_computed_tokens += max(1, left)

    def sample(self, token: int) -> None:
        for request in self.requests:
            request._all_token_ids.append(token)  # noqa: SLF001 - stands in for vLLM's own

    def _take(self, count: int) -> list[int]:
        self.blocks += count
        return list(range(self.blocks - count, self.blocks))

    def _output(
        self,
        new: list[SimpleNamespace],
        names: list[str],
        blocks: list[tuple[list[int]] | None],
        computed: list[int],
        counts: list[int],
    ) -> SimpleNamespace:
        return SimpleNamespace(
            scheduled_new_reqs=new,
            scheduled_cached_reqs=SimpleNamespace(
                req_ids=names,
                resumed_req_ids=set(),
                new_block_ids=blocks,
                num_computed_tokens=computed,
            ),
            num_scheduled_tokens={
                r.request_id: count for r, count in zip(self.requests, counts, strict=True)
            },
            total_num_scheduled_tokens=sum(counts),
            scheduled_spec_decode_tokens={},
            preempted_req_ids=set(),
        )


def reporter(kind: SourceKind) -> SourceReporter:
    """The real reporter with nobody to report to, its queue as large as configured."""
    config = AdapterConfig.load({"address": "127.0.0.1:9", "worker": "bench"}, {})
    made = SourceReporter(
        config,
        SourceIdentity(worker="bench", incarnation="bench", kind=kind),
        fingerprint=dict,
        kv_groups=(SPEC,) if kind is SourceKind.RANK else (),
        on_idle_attest=lambda _: None,
    )
    made.start()
    return made


def measure(batch: int, steps: int) -> tuple[list[float], list[float]]:
    """CPU time of the calling thread per step, in microseconds: (scheduler, rank) lists."""
    work = Steps(batch)
    scheduler = SchedulerRole(LiveReader(lambda _: ()))
    scheduler.reporter = reporter(SourceKind.SCHEDULER)
    rank = RankRole([ObservedGroup(SPEC, NoDigest())], ModelAccess(None), record_sampler=True)
    rank.reporter = reporter(SourceKind.RANK)
    for request in work.requests:
        scheduler.new_request(request)
    costs = []
    for step in range(steps + 50):
        output = work.next() if step else work.first()
        t0 = time.thread_time_ns()
        metadata = scheduler.launch(output)
        t1 = time.thread_time_ns()
        work.advance()
        t2 = time.thread_time_ns()
        rank.before_step(metadata)
        rank.after_step(metadata)
        t3 = time.thread_time_ns()
        work.sample(step)
        t4 = time.thread_time_ns()
        scheduler.outcome(StepDone(metadata.step))
        t5 = time.thread_time_ns()
        costs.append(((t1 - t0 + t5 - t4) / 1e3, (t3 - t2) / 1e3))
    for source in (scheduler.reporter, rank.reporter):
        source.close(0.0)
    warm = costs[50:]
    return [s for s, _ in warm], [r for _, r in warm]


def spread(values: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 1),
        "p95": round(statistics.quantiles(values, n=20)[-1], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 64, 256])
    given = parser.parse_args()
    rows = []
    for batch in given.batch:
        scheduler, rank = measure(batch, given.steps)
        total = [s + r for s, r in zip(scheduler, rank, strict=True)]
        row = {
            "batch": batch,
            "steps": given.steps,
            "scheduler_us": spread(scheduler),
            "rank_us": spread(rank),
            "total_us": spread(total),
        }
        rows.append(row)
        print(json.dumps(row))
    what = "CPU time of the engine's thread per decode step, digest and sending not counted"
    print(write_result("engine-thread-cost", {"what": what, "results": rows}))


if __name__ == "__main__":
    main()
