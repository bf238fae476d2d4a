"""Putting attestations together from their parts, and waiting for them."""

import asyncio
import itertools
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence

from tokenwitness.v1 import recorder_pb2 as pb

from sidecar.core.events import SourceKey, SourceKind
from sidecar.ports import AttestationOrigin
from sidecar.recorder.errors import RefusalCause, StreamRefusedError
from sidecar.recorder.hello import malformed
from sidecar.registry import (
    PUSHED_BIT,
    AttestationFailed,
    Attested,
    SourceAttestation,
    SourceLink,
    SourceRuntime,
    WorkerRuntime,
)
from sidecar.wire import codec

# Answers kept for whoever asked; asking needs one at a time, a few tolerate overlaps.
MAX_ANSWERS = 4
# Attestations of one source that come at the same time.
MAX_OPEN = 4
# Of one attestation, all its parts together. A row of digests is 32 bytes a token.
MAX_ATTESTATION_BYTES = 512 << 20
MAX_ERROR_TEXT = 1024


class PartIntake:
    """The attestations of one stream, until each is whole.

    Parts come in order from 0; part 0 of an id that is open starts it again. Beyond MAX_OPEN
    the oldest unfinished one gives way.
    """

    def __init__(self, key: SourceKey) -> None:
        self._key = key
        self._open: OrderedDict[int, pb.AttestationPart] = OrderedDict()
        self._sizes: dict[int, int] = {}

    def add(
        self, part: pb.AttestationPart, *, generation: int, received_unix_ns: int, after_seq: int
    ) -> Attested | None:
        """Takes a part; returns the attestation that it completes.

        Raises:
            StreamRefusedError: of the other kind of source, out of order, or too large.
            MalformedMessage: the whole contradicts itself.

        """
        attest_id = part.attest_id
        if not attest_id:
            raise malformed("attestation.attest_id", 0, "the id of a request or a sign")
        if part.error:
            self._drop(attest_id)
            error = part.error[:MAX_ERROR_TEXT]
            return AttestationFailed(attest_id, f"{self._key} could not attest: {error}")
        whole = self._join(part)
        if not part.last:
            return None
        self._drop(attest_id)
        return SourceAttestation(
            attest_id=attest_id,
            generation=generation,
            step=whole.step,
            idle=whole.idle,
            body=codec.decode_attestation(whole),
            received_unix_ns=received_unix_ns,
            after_seq=after_seq,
            payload=whole.SerializeToString(),
        )

    def _join(self, part: pb.AttestationPart) -> pb.AttestationPart:
        self._check(part)
        attest_id = part.attest_id
        if part.part == 0:
            self._drop(attest_id)
        whole = self._open.setdefault(attest_id, pb.AttestationPart())
        size = self._sizes.get(attest_id, 0) + part.ByteSize()
        if size > MAX_ATTESTATION_BYTES:
            raise StreamRefusedError(
                RefusalCause.TOO_LARGE,
                f"attestation {attest_id} has {size} bytes or more, the most is "
                f"{MAX_ATTESTATION_BYTES}",
            )
        whole.MergeFrom(part)
        self._sizes[attest_id] = size
        while len(self._open) > MAX_OPEN:
            self._drop(next(iter(self._open)))
        return whole

    def _check(self, part: pb.AttestationPart) -> None:
        body = part.WhichOneof("body")
        wanted = "scheduler" if self._key.kind is SourceKind.SCHEDULER else "rank"
        if body != wanted:
            raise malformed("attestation.body", body, f"{wanted!r} from {self._key}")
        if part.part == 0:
            return
        whole = self._open.get(part.attest_id)
        expected = 0 if whole is None else whole.part + 1
        if whole is None or part.part != expected:
            raise malformed("attestation.part", part.part, f"{expected}, the next of this id")
        found = (part.step, part.idle, part.scheduler.committed_step)
        first = (whole.step, whole.idle, whole.scheduler.committed_step)
        if found != first:
            raise malformed("attestation.step", found, f"{first}, as in its first part")

    def _drop(self, attest_id: int) -> None:
        self._open.pop(attest_id, None)
        self._sizes.pop(attest_id, None)


def keep_answer(worker: WorkerRuntime, source: SourceRuntime, attested: Attested) -> None:
    """Stores an attestation where those that wait for it look."""
    if attested.attest_id & PUSHED_BIT:
        source.pushed = attested
        source.pushed_generation = source.generation
    source.answers[attested.attest_id] = attested
    while len(source.answers) > MAX_ANSWERS:
        source.answers.popitem(last=False)
    worker.changes.notify()


class _Wish:
    """One source's attestation that somebody waits for."""

    def __init__(
        self, worker: WorkerRuntime, key: SourceKey, attest_id: int, origin: AttestationOrigin
    ) -> None:
        self._worker = worker
        self._key = key
        self._attest_id = attest_id
        self._after_sign = origin is AttestationOrigin.AFTER_SIGN
        self._asked: SourceLink | None = None

    def answer(self) -> Attested | None:
        """What came so far."""
        source = self._worker.sources.get(self._key)
        if source is None:
            return None
        present = source.pushed_generation == source.generation == self._worker.generation
        if self._after_sign and present and source.pushed is not None:
            return source.pushed
        return source.answers.get(self._attest_id)

    def drop(self) -> None:
        """Frees what was collected: it can be hundreds of megabytes."""
        source = self._worker.sources.get(self._key)
        if source is not None:
            source.answers.pop(self._attest_id, None)

    def can_ask(self, *, patient: bool) -> bool:
        """Whether there is a stream over which it was not asked yet."""
        source = self._worker.sources.get(self._key)
        if source is None or source.link is None or source.link is self._asked:
            return False
        return not (patient and self._after_sign and source.expects_push)

    def ask(self, deadline_ms: int, *, weights: bool) -> None:
        """Asks over the present stream."""
        link = self._worker.sources[self._key].link
        if link is not None:
            link.request_attestation(self._attest_id, deadline_ms, weights=weights)
            self._asked = link


class AttestationDesk:
    """Asks sources for attestations and collects the answers."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Not from 1: a source may still answer what a sidecar before this one asked.
        self._ids = itertools.count(secrets.randbits(48) + 1)

    async def request(
        self,
        worker: WorkerRuntime,
        sources: Sequence[SourceKey],
        *,
        weights: bool,
        deadline_s: float,
        origin: AttestationOrigin,
    ) -> dict[SourceKey, Attested]:
        """One entry for each of `sources`, at the latest after `deadline_s` seconds.

        All sources are asked under one id, so that an adapter can have them stand at one
        boundary.
        """
        attest_id = next(self._ids)
        until = self._clock() + deadline_s
        answers = await asyncio.gather(
            *(
                self._one(worker, key, attest_id, until, weights=weights, origin=origin)
                for key in sources
            )
        )
        return dict(zip(sources, answers, strict=True))

    async def _one(
        self,
        worker: WorkerRuntime,
        key: SourceKey,
        attest_id: int,
        until: float,
        *,
        weights: bool,
        origin: AttestationOrigin,
    ) -> Attested:
        wish = _Wish(worker, key, attest_id, origin)
        patience_until = self._clock() + (until - self._clock()) / 2
        while True:
            now = self._clock()
            # A source that sent a Sign is about to push what it reads; asking would make it
            # read twice. When half of the time is over it is asked all the same.
            patient = now < patience_until
            stop = patience_until if patient else until
            await worker.changes.wait(
                lambda: wish.answer() is not None or wish.can_ask(patient=patient),  # noqa: B023 - awaited in this turn
                max(stop - now, 0.0),
            )
            found = wish.answer()
            if found is not None:
                wish.drop()
                return found
            left = until - self._clock()
            if left <= 0:
                return AttestationFailed(attest_id, self._why_not(worker, key))
            if wish.can_ask(patient=patient):
                wish.ask(max(int(left * 1000), 1), weights=weights)

    @staticmethod
    def _why_not(worker: WorkerRuntime, key: SourceKey) -> str:
        source = worker.sources.get(key)
        if source is None or source.link is None:
            return f"{key} was not attached when the time for its attestation was over"
        return f"{key} is attached and did not attest in time; its engine may stand still"
