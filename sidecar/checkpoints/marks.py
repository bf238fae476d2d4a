"""Making and completing marks: a boundary that everything live was attested at."""

import asyncio
import secrets
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass

import grpc

from sidecar.core.events import SchedulerAttestation, SourceKey
from sidecar.ledger.errors import FlushTimeoutError
from sidecar.ledger.interface import Ledger
from sidecar.ledger.values import Mark, MarkOutcome, StoredAttestation
from sidecar.ports import AttestationOrigin, VerificationHost
from sidecar.recorder.clocks import Clocks
from sidecar.registry import Attested, Registry, SourceAttestation, WorkerRuntime
from sidecar.rpc import AnswerError


@dataclass(frozen=True, slots=True)
class Boundary:
    """All sources' attestations of one step."""

    step: int
    sessions: int
    attestations: Mapping[SourceKey, SourceAttestation]


class Marks:
    """Marks of all workers, kept in the ledger."""

    def __init__(
        self,
        *,
        registry: Registry,
        ledger: Ledger,
        host: VerificationHost,
        clocks: Clocks,
    ) -> None:
        self._registry = registry
        self._ledger = ledger
        self._host = host
        self._clocks = clocks

    async def prepare(self, worker: WorkerRuntime, name: str, deadline_s: float) -> Mark:
        """A mark that is durable, with everything before it.

        Raises:
            AnswerError: not whole, or no common boundary, or not durable in time.
            MarkExistsError, LedgerError: as the ledger says.

        """
        until = self._clocks.monotonic() + deadline_s
        if missing := self._registry.missing_words(worker):
            raise AnswerError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"worker {worker.name!r} is not whole: {missing}",
            )
        boundary = await self._boundary(worker, until)
        mark = Mark(
            name=name or f"mark-{self._clocks.unix_ns()}-{secrets.token_hex(4)}",
            worker=worker.name,
            incarnation=worker.incarnation,
            generation=worker.generation,
            step=boundary.step,
            sessions=boundary.sessions,
            made_unix_ns=self._clocks.unix_ns(),
        )
        for key, attested in boundary.attestations.items():
            source = worker.sources[key]
            self._ledger.put_attestation(
                StoredAttestation(
                    source_id=source.source_id,
                    generation=source.generation,
                    attest_id=attested.attest_id,
                    step=attested.step,
                    cut=self._ledger.cut(source.source_id),
                    unix_ns=attested.received_unix_ns,
                    payload=attested.payload,
                )
            )
        # Durable together with all that was appended before it.
        await self._durable(self._ledger.put_mark(mark), until)
        self._host.publish(mark)
        return mark

    async def complete(self, worker: str, name: str, outcome: MarkOutcome, image: str) -> Mark:
        """Fixes the window of steps that the image can hold.

        Raises:
            AnswerError: it was completed before, in another way.
            UnknownMarkError, LedgerError: as the ledger says.

        """
        mark = self._ledger.get_mark(worker, name)
        if mark.outcome is not MarkOutcome.PREPARED:
            if (mark.outcome, mark.image) == (outcome, image):
                return mark
            raise AnswerError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"mark {name!r} was completed before as {mark.outcome.name} with image "
                f"{mark.image!r}",
            )
        last_step = await asyncio.to_thread(self._newest_step, mark)
        completed, done = self._ledger.complete_mark(
            worker,
            name,
            outcome=outcome,
            last_step=last_step,
            completed_unix_ns=self._clocks.unix_ns(),
            image=image,
        )
        await self._durable(done, self._clocks.monotonic() + 10.0)
        self._host.publish(completed)
        return completed

    def _newest_step(self, mark: Mark) -> int:
        steps = [mark.step]
        for entry in self._ledger.sources(mark.worker):
            if entry.incarnation != mark.incarnation:
                continue
            known = {each.generation for each in self._ledger.generations(entry.source_id)}
            if mark.generation in known:
                steps.append(self._ledger.newest_step(entry.source_id, mark.generation))
        return max(steps)

    async def _boundary(self, worker: WorkerRuntime, until: float) -> Boundary:
        """Attestations of one boundary. An engine that runs is asked until all agree: where
        an adapter cannot pass the request along with the step, ranks answer a step apart.
        """
        apart = ""
        while (left := until - self._clocks.monotonic()) > 0:
            answers = await self._host.request_attestation(
                worker,
                worker.expected,
                weights=True,
                deadline_s=left,
                origin=AttestationOrigin.FRESH,
            )
            attested = _all_attested(answers)
            steps = {each.step for each in attested.values()}
            if len(steps) == 1:
                return Boundary(steps.pop(), _sessions(attested), attested)
            apart = ", ".join(f"{key} at step {each.step}" for key, each in attested.items())
        raise AnswerError(
            grpc.StatusCode.DEADLINE_EXCEEDED,
            f"the sources of {worker.name!r} never stood at one boundary: {apart or 'no time'}",
        )

    async def _durable(self, done: "Future[int]", until: float) -> None:
        left = max(until - self._clocks.monotonic(), 0.001)
        try:
            await asyncio.wait_for(asyncio.wrap_future(done), left)
        except (TimeoutError, FlushTimeoutError) as error:
            raise AnswerError(
                grpc.StatusCode.DEADLINE_EXCEEDED,
                "the ledger did not make the mark durable in time; it may appear later",
            ) from error


def _all_attested(answers: Mapping[SourceKey, Attested]) -> dict[SourceKey, SourceAttestation]:
    failed = [each.reason for each in answers.values() if not isinstance(each, SourceAttestation)]
    if failed:
        raise AnswerError(grpc.StatusCode.DEADLINE_EXCEEDED, "; ".join(failed))
    return {key: each for key, each in answers.items() if isinstance(each, SourceAttestation)}


def _sessions(attested: Mapping[SourceKey, SourceAttestation]) -> int:
    return sum(
        len(each.body.sessions)
        for each in attested.values()
        if isinstance(each.body, SchedulerAttestation)
    )
