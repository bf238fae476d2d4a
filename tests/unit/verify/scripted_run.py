"""A whole sidecar with the real verifier, and a scripted worker that can be restored."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tokenwitness.v1 import recorder_pb2 as pb

from sidecar.config import Settings
from sidecar.core.continuation import ContinuationSettings, Exactness
from sidecar.core.events import Sampling
from sidecar.ports import VerificationHost
from sidecar.shadow.engine import Completion, EngineDescription, EngineLoad
from sidecar.shadow.request_ids import ShadowIds
from sidecar.shadow.settings import ShadowSettings
from sidecar.verify.continuation import ContinuationPlan
from sidecar.verify.runner import RunSettings
from sidecar.verify.service import VerificationService
from tests.unit.services.scripted import (
    Script,
    ScriptedSource,
    fingerprint,
    first_steps,
    kv_group,
    process,
    rank_step,
    session_start,
)

HELD = (1 << 63) | 5
SCHEDULER = Script()
RANK = Script(rank=0, nonce=8)
K = 4


@dataclass
class ScriptedEngine:
    """Replays what a test says that the uninterrupted run gives."""

    tokens: Sequence[int] = (12, 13, 14, 15, 16, 17)
    prompts: list[tuple[int, ...]] = field(default_factory=list)

    async def describe(self, *, timeout_s: float) -> EngineDescription:
        return EngineDescription(model="scripted", max_context=None)

    async def load(self, *, timeout_s: float) -> EngineLoad | None:
        return None

    async def complete(
        self, prompt: Sequence[int], *, sampling: Sampling, max_tokens: int, **rest: Any
    ) -> Completion:
        self.prompts.append(tuple(prompt))
        tokens = tuple(self.tokens[:max_tokens])
        return Completion(
            tokens=tokens,
            top=tuple({token: -0.1, token + 500: -5.0} for token in tokens),
            finish="length",
            cached_tokens=0,
        )


def verifier_of(
    engine: ScriptedEngine | None, *, release_on_fault: bool = True, deadline_s: float = 8.0
) -> Any:
    """A factory of the real verifier; without an engine nothing is replayed."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[ScriptedEngine]:
        assert engine is not None
        yield engine

    def make(host: VerificationHost, settings: Settings) -> VerificationService:
        return VerificationService(
            host,
            RunSettings(
                attestation_deadline_s=1.0,
                late_steps_allowed=settings.late_steps_allowed,
                release_on_fault=release_on_fault,
            ),
            ContinuationPlan(
                rules=ContinuationSettings(exactness=Exactness.BATCH_INVARIANT),
                shadow=ShadowSettings(k=K) if engine is not None else None,
                ids=ShadowIds(),
                open_engine=lambda _worker: opened(),
            ),
            default_deadline_s=deadline_s,
        )

    return make


@dataclass
class Worker:
    """One session "s" of 3 prompt tokens, `steps` steps recorded; then whatever a test says."""

    scheduler: ScriptedSource
    rank: ScriptedSource
    steps: int
    next_seq: int
    rank_seq: int

    @property
    def tokens(self) -> list[int]:
        return [1, 2, 3, 10, *(10 + step for step in range(2, self.steps + 1))]

    async def restore(self, rig: Any, *, steps: int, start_ticks: int) -> None:
        """Both sources are made anew, on new streams, from an image of generation 0 that was
        taken after `steps` steps.
        """
        await self.scheduler.hang_up()
        await self.rank.hang_up()
        self.steps, self.next_seq, self.rank_seq = steps, 2 * steps + 1, steps + 2
        anew = {"process": process(start_ticks=start_ticks), "signs_seen": 1}
        self.scheduler = await self._again(rig, SCHEDULER, self.next_seq, HELD, anew)
        self.rank = await self._again(rig, RANK, self.rank_seq, HELD + 1, anew)

    @staticmethod
    async def _again(
        rig: Any, script: Script, seq: int, held: int, anew: dict[str, Any]
    ) -> ScriptedSource:
        source, welcome = await rig.workers.attach(script.but(next_seq=seq, oldest_seq=seq, **anew))
        kind, told = pb.SIGN_KIND_PROCESS_RECREATED, welcome.generation
        await source.sign(kind=kind, next_seq=seq, held_attest_id=held, generation=told, **anew)
        return source

    async def sign(self, *, held: bool = True) -> None:
        """Both sources notice that their process was made anew."""
        anew = {"kind": pb.SIGN_KIND_PROCESS_RECREATED, "process": process(start_ticks=99)}
        for source, seq, held_id in (
            (self.scheduler, self.next_seq, HELD),
            (self.rank, self.rank_seq, HELD + 1),
        ):
            held_attest_id = held_id if held else 0
            await source.sign(**anew, next_seq=seq, held_attest_id=held_attest_id)

    async def attest(self, ids: tuple[int, int] = (HELD, HELD + 1), **wrong: Any) -> None:
        """Both sources read their memory: as it was recorded, but for `wrong`."""
        await self.scheduler.say(
            attestation=pb.AttestationPart(
                attest_id=ids[0],
                last=True,
                step=wrong.get("step", self.steps),
                scheduler=pb.SchedulerAttestation(
                    committed_step=wrong.get("step", self.steps),
                    sessions=[] if wrong.get("lost") else [self._live(wrong)],
                ),
            )
        )
        await self.rank.say(
            attestation=pb.AttestationPart(
                attest_id=ids[1],
                last=True,
                step=wrong.get("rank_step", wrong.get("step", self.steps)),
                rank=pb.RankAttestation(
                    kv=[] if wrong.get("lost") else [self._kv(wrong)],
                    weights=weights(wrong),
                    kv_groups=[kv_group()],
                ),
            )
        )

    def _live(self, wrong: dict[str, Any]) -> pb.LiveSession:
        tokens = wrong.get("tokens", self.tokens)
        return pb.LiveSession(
            row=0,
            session_id="s",
            emitted=len(tokens),
            computed=wrong.get("computed", len(tokens) - 1),
            prompt_length=3,
            tokens=tokens,
            sampling=session_start(0, "s", []).sampling,
            blocks=[pb.BlockUpdate(row=0, kv_group=0, offset=0, blocks=[1, 2, 3])],
        )

    def _kv(self, wrong: dict[str, Any]) -> pb.SessionKv:
        digests = bytearray(16 * (len(self.tokens) - 1))
        if "flip" in wrong:
            # The second digest (layer 1) of one position.
            digests[16 * wrong["flip"] + 8] ^= 1
        return pb.SessionKv(
            row=0, session_id="s", kv_group=0, first_position=0, digests=bytes(digests)
        )

    async def go_on(self, *tokens: int) -> None:
        """Steps after the restore, each with its token."""
        for token in tokens:
            self.steps += 1
            step, position = self.steps, len(self.tokens) - 2
            await self.scheduler.records(
                pb.Record(
                    seq=self.next_seq, launch=pb.Launch(step=step, rows=[0], starts=[position])
                ),
                pb.Record(seq=self.next_seq + 1, commit=pb.Commit(step=step, tokens=[token])),
            )
            self.next_seq += 2


def weights(wrong: dict[str, Any]) -> pb.WeightDigests:
    return pb.WeightDigests(names=["w"], digests=[wrong.get("weight", 77)], sizes=[8])


async def recorded_worker(rig: Any, steps: int = 4) -> Worker:
    """Attaches and records; prompt in slots 4 to 6, then one slot a step."""
    scheduler, _ = await rig.workers.attach(SCHEDULER)
    rank, _ = await rig.workers.attach(RANK)
    records = first_steps(steps=steps)
    blocks = pb.BlockUpdate(row=0, kv_group=0, offset=0, blocks=[1, 2, 3])
    records[0].launch.blocks[0].CopyFrom(blocks)
    await scheduler.records(*records)
    await rank.records(
        pb.Record(seq=1, weights=weights({})),
        rank_step(2, 1, [4, 5, 6]),
        *(rank_step(step + 1, step, [5 + step]) for step in range(2, steps + 1)),
    )
    await scheduler.acked(2 * steps)
    await rank.acked(steps + 1)
    return Worker(scheduler, rank, steps, 2 * steps + 1, steps + 2)


__all__ = ["HELD", "K", "ScriptedEngine", "Worker", "fingerprint", "recorded_worker", "verifier_of"]
