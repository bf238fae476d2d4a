"""vLLM's own asynchronous scheduler with a worker that only moves numbers.

The CPU platform turns asynchronous scheduling off, so no real engine runs it here. The
scheduler, its KV cache manager and the adapter's both roles are the real ones; the worker
writes a random number to each slot where a real one would write a row, samples random tokens
and rejects random drafts.
"""

import random
from collections import deque

import numpy as np

from engine_adapters.report.identity import KvGroupSpec, SourceIdentity, SourceKind
from engine_adapters.vllm import assembly
from engine_adapters.vllm.kv_groups import ObservedGroup
from engine_adapters.vllm.metadata import StepDone
from engine_adapters.vllm.model_access import ModelAccess
from engine_adapters.vllm.rank_role import RankRole
from tests.engines.vllm_support.engine import TRANSFER, model_folder
from tests.engines.vllm_support.recording import RecordingReporter

BLOCK = 32


class NumberDigester:
    """The memory itself: what a slot holds is its digest."""

    def __init__(self, blocks):
        self.memory = np.zeros((blocks * BLOCK, 1), np.uint64)

    def after_step(self, slots):
        return self.memory[slots].copy()

    def now(self, slots):
        return self.memory[slots].copy()


class SimulatedEngine:
    """`step` schedules if it can, runs one step on the rank, takes one outcome."""

    def __init__(self, monkeypatch, *, seed, blocks, drafts=0, asynchronous=True):
        self.chance = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.digester = NumberDigester(blocks)
        self.scheduler = self._recorder(SourceKind.SCHEDULER)
        self.rank = self._recorder(SourceKind.RANK, groups=(_group(blocks),))
        monkeypatch.setattr(assembly, "SourceReporter", lambda *_, **__: self.scheduler)
        self.core = _scheduler(blocks, drafts, asynchronous=asynchronous)
        self.scheduler.on_idle_attest = self.core.connector._scheduler.role.idle_attestation
        self.role = RankRole(
            [ObservedGroup(_group(blocks), self.digester)], ModelAccess(None), record_sampler=True
        )
        self.role.reporter = self.rank
        self.launched = deque()
        self.done = deque()
        self.written = {}
        self.tables = {}

    def _recorder(self, kind, groups=()):
        identity = SourceIdentity(worker="w", incarnation="i", kind=kind)
        return RecordingReporter(None, identity, fingerprint=None, kv_groups=groups)

    def add(self, name, prompt, tokens):
        from vllm import SamplingParams
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.request import Request

        init_none_hash(sha256)
        params = SamplingParams(max_tokens=tokens, ignore_eos=True)
        hasher = get_request_block_hasher(BLOCK, sha256)
        self.core.add_request(Request(name, list(prompt), params, None, block_hasher=hasher))

    def abort(self, name):
        from vllm.v1.request import RequestStatus

        self.core.finish_requests(name, RequestStatus.FINISHED_ABORTED)

    def busy(self):
        return self.core.has_requests() or self.launched or self.done

    def step(self, depth=2):
        """One turn of the engine's loop; what runs first is chance, as with real processes."""
        if len(self.launched) + len(self.done) < depth and self.core.has_requests():
            output = self.core.schedule()
            samples = {
                name: not self.core.requests[name].is_prefill_chunk
                for name in output.num_scheduled_tokens
            }
            self.launched.append((output, samples))
        if self.launched and (not self.done or self.chance.random() < 0.5):
            self._run(*self.launched.popleft())
        if self.done and (
            len(self.launched) + len(self.done) >= depth or self.chance.random() < 0.5
        ):
            self.core.update_from_output(*self.done.popleft())

    def _run(self, output, samples):
        from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput

        metadata = output.kv_connector_metadata
        self.role.before_step(metadata)
        self._tables_of(output)
        sampled = [
            self._forward(name, output, samples[name]) for name in output.num_scheduled_tokens
        ]
        self.role.after_step(metadata)
        names = list(output.num_scheduled_tokens)
        outcome = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=sampled,
            kv_connector_output=KVConnectorOutput(kv_connector_worker_meta=StepDone(metadata.step)),
        )
        self.done.append((output, outcome))

    def _tables_of(self, output):
        for new in output.scheduled_new_reqs:
            self.tables[new.req_id] = list(new.block_ids[0])
            self.written[new.req_id] = new.num_computed_tokens
        cached = output.scheduled_cached_reqs
        for name, blocks, computed in zip(
            cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True
        ):
            if name in cached.resumed_req_ids:
                self.tables[name] = list(blocks[0])
                self.written[name] = computed
            elif blocks is not None:
                self.tables[name].extend(blocks[0])

    def _forward(self, name, output, samples):
        """Writes where the worker knows itself to be, which the scheduler may not know yet."""
        count = output.num_scheduled_tokens[name]
        drafts = len(output.scheduled_spec_decode_tokens.get(name, ()))
        start = self.written[name]
        for position in range(start, start + count):
            slot = self.tables[name][position // BLOCK] * BLOCK + position % BLOCK
            self.digester.memory[slot] = self.numbers.integers(1, 2**63)
        if not samples:
            self.written[name] = start + count
            return []
        accepted = self.chance.randint(0, drafts)
        self.written[name] = start + count - (drafts - accepted)
        return [self.chance.randrange(100, 9_000) for _ in range(1 + accepted)]


def _group(blocks):
    return KvGroupSpec(
        group=0, block_size=BLOCK, blocks=blocks, layers=(0,), digest_layers=(1,), row_bytes=8
    )


def _scheduler(blocks, drafts, *, asynchronous):
    import torch
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    speculation = {"method": "ngram", "num_speculative_tokens": drafts, "prompt_lookup_max": 3}
    config = EngineArgs(
        model=model_folder(),
        max_model_len=256,
        block_size=BLOCK,
        max_num_seqs=8,
        max_num_batched_tokens=64,
        kv_transfer_config=dict(TRANSFER),
        speculative_config=speculation if drafts else None,
    ).create_engine_config()
    config.scheduler_config.async_scheduling = asynchronous
    config.cache_config.num_gpu_blocks = blocks
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=4, dtype=torch.bfloat16)
    cache = KVCacheConfig(
        num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["0"], spec)]
    )
    kind = AsyncScheduler if asynchronous else Scheduler
    return kind(config, cache, StructuredOutputManager(config), BLOCK)
