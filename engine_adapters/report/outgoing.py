"""What goes out next on the stream, and what has to go out again on the next one.

Order on a stream: a sign before anything else; an attestation after all records put before it
and before those put later; records; a heartbeat each second. Encoding happens here, on the
thread that sends. A stream is known by its number: what belongs to an older one gets nothing.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tokenwitness.v1 import recorder_pb2 as pb
from tokenwitness.v1 import types_pb2

from engine_adapters.report.delivery import Delivery
from engine_adapters.report.encoding import encode_batch
from engine_adapters.report.identity import KvGroupSpec
from engine_adapters.report.log import note_error
from engine_adapters.report.outbox import Outbox
from engine_adapters.report.parts import Attested, cut
from engine_adapters.report.records import HoleRecord
from engine_adapters.report.signs import SignSeen

BATCH_BYTES = 256 * 1024
HEARTBEAT_S = 1.0
# Attestations that wait to be sent or to be known to have arrived; the oldest gives way.
MOST_ATTESTATIONS = 16
# Of those, the ones that carry what was read: it can be large.
MOST_BODIES = 4
# For this long after it was seen a sign is worth knocking often.
URGENT_SIGN_S = 60.0


@dataclass(frozen=True, slots=True)
class Sighting:
    """A sign with where the source stood when it was seen."""

    sign: SignSeen
    next_seq: int
    step: int
    held_attest_id: int
    # Monotonic seconds.
    seen_at: float


class _Pending:
    """An attestation on its way. `barrier`: seq of the first record put after it."""

    def __init__(self, attested: Attested, barrier: int) -> None:
        self.attested = attested
        self.barrier = barrier
        self.delivery = Delivery()


@dataclass(frozen=True, slots=True)
class _Cutting:
    """The attestation that a stream is in the middle of."""

    stream: int
    pending: _Pending
    parts: Iterator[pb.AttestationPart]


class Outgoing:
    """Thread safe. `held` tells the attest id that the source is held for, 0 if none;
    `heartbeat` makes the message. Neither may call back.
    """

    def __init__(
        self,
        outbox: Outbox,
        kv_groups: Sequence[KvGroupSpec],
        *,
        fingerprint: Callable[[], Mapping[str, str]],
        held: Callable[[], int],
        heartbeat: Callable[[], pb.Heartbeat],
    ) -> None:
        self._outbox = outbox
        self._kv_groups = kv_groups
        self._fingerprint = fingerprint
        self._held = held
        self._heartbeat = heartbeat
        self._lock = threading.Lock()
        self._stream = 0
        self._sighting: Sighting | None = None
        # Where the oldest sign stood that has not arrived: what this memory shares with the
        # record ends there.
        self._branch: Sighting | None = None
        self._sign_delivery = Delivery()
        self._pending: deque[_Pending] = deque()
        self._cutting: _Cutting | None = None
        self._next_heartbeat = 0.0
        # Last told by the sidecar. In memory on purpose: an image of it says whose history it is.
        self._generation = 0
        self.holes_sent = 0

    def add_sign(self, sighting: Sighting) -> None:
        with self._lock:
            if self._branch is None or self._sign_delivery.arrived:
                self._branch = sighting
            self._sighting = sighting
            self._sign_delivery = Delivery()
            # What was read before the sign answers nothing that is asked after it.
            self._pending = deque(p for p in self._pending if not p.attested.attest_id >> 63)

    def add_attestation(self, attested: Attested) -> None:
        with self._lock:
            if attested.body is not None:
                self._make_room()
            self._pending.append(_Pending(attested, self._outbox.next_seq))
            while len(self._pending) > MOST_ATTESTATIONS:
                self._pending.popleft()

    def hello_position(self) -> tuple[int, int | None]:
        """Seq of the next new record, and the step to go with it (None: as it is now). While a
        sign has not arrived both are as of the sign: the generation that the Hello opens
        branches off there, not where the source stands by now.
        """
        with self._lock:
            if self._branch is None or self._sign_delivery.arrived:
                return self._outbox.next_seq, None
            return self._branch.next_seq, self._branch.step

    def open_stream(self) -> int:
        """A new stream begins; older ones get nothing more. Its number."""
        with self._lock:
            self._stream += 1
            return self._stream

    @property
    def generation(self) -> int:
        """The last generation that the sidecar told; 0 before the first."""
        return self._generation

    def welcomed(self, stream: int, durable: int, generation: int, now: float) -> None:
        """The sidecar has everything up to `durable`; the rest is sent again."""
        with self._lock:
            if stream != self._stream:
                return
            # First, as in `acked`: whatever is forgotten here is of the generation that is named.
            self._generation = generation
            self._outbox.rewind(durable)
            for pending in self._pending:
                pending.delivery = Delivery(arrived=pending.delivery.arrived)
            self._next_heartbeat = now + HEARTBEAT_S
            self._prune()

    def acked(self, stream: int, seq: int, generation: int) -> None:
        with self._lock:
            if stream != self._stream:
                return
            self._generation = generation
            seq = self._outbox.ack(seq)
            self._sign_delivery.acked(stream, seq)
            for pending in self._pending:
                pending.delivery.acked(stream, seq)
            self._prune()

    @property
    def durable_seq(self) -> int:
        """Everything up to here is durable."""
        return self._outbox.acked

    def give_up_records(self, reason: str) -> int:
        """Records that this stream was sent become a hole. How many."""
        return self._outbox.give_up_sent(reason)

    def give_up_attestations(self, reason: str) -> int:
        """Attestations that this stream was sent become an error. How many."""
        with self._lock:
            sent = [
                p for p in self._pending if p.attested.body and p.delivery.stream == self._stream
            ]
            for pending in sent:
                pending.attested = replace(pending.attested, body=None, error=reason)
            return len(sent)

    def sign_is_urgent(self, now: float) -> bool:
        """A sign was seen lately and has not arrived."""
        sighting = self._sighting
        if sighting is None or self._sign_delivery.arrived:
            return False
        return now - sighting.seen_at < URGENT_SIGN_S

    def beat_soon(self) -> None:
        """The next heartbeat is due now."""
        self._next_heartbeat = 0.0

    @property
    def unsent_bytes(self) -> int:
        """About how many bytes of records wait to be sent on this stream."""
        return self._outbox.unsent_weight

    @property
    def drained(self) -> bool:
        """Everything was sent on this stream and the records are durable."""
        with self._lock:
            waiting = any(p.delivery.stream != self._stream for p in self._pending)
            return self._outbox.acked + 1 == self._outbox.next_seq and not waiting

    def sign(self, stream: int, now: float) -> pb.AttachRequest | None:
        """The sign that this stream has to be told of, once."""
        with self._lock:
            sighting, delivery = self._sighting, self._sign_delivery
            if stream != self._stream or sighting is None or delivery.stream == stream:
                return None
            if delivery.arrived and not self._is_held(sighting.held_attest_id):
                return None
            branch = sighting if delivery.arrived or self._branch is None else self._branch
            delivery.sent(stream, self._outbox.cursor, now)
        return pb.AttachRequest(
            sign=pb.Sign(
                kind=sighting.sign.kind.encode(),
                process=sighting.sign.process.encode(),
                gap_ns=sighting.sign.gap_ns,
                next_seq=branch.next_seq,
                step=branch.step,
                fingerprint=self.fingerprint(),
                signs_seen=sighting.sign.count,
                held_attest_id=sighting.held_attest_id,
                generation=self._generation,
            )
        )

    def next_message(self, stream: int, now: float) -> pb.AttachRequest | None:
        """What to send next; None: nothing now, or this stream is over."""
        with self._lock:
            if stream != self._stream:
                return None
            if now >= self._next_heartbeat:
                self._next_heartbeat = now + HEARTBEAT_S
                self._settle(now)
                return pb.AttachRequest(heartbeat=self._heartbeat())
            pending = next((p for p in self._pending if p.delivery.stream != stream), None)
            barrier = pending.barrier if pending else None
            batch = self._outbox.take(BATCH_BYTES, barrier)
        if batch:
            self.holes_sent += sum(isinstance(record, HoleRecord) for _, record in batch)
            return pb.AttachRequest(records=encode_batch(batch))
        return self._next_part(pending, stream, now) if pending else None

    def fingerprint(self) -> types_pb2.Fingerprint:
        """The environment as it is now, by name."""
        try:
            found = self._fingerprint()
            return types_pb2.Fingerprint(names=list(found), values=[str(v) for v in found.values()])
        except Exception as error:  # noqa: BLE001 - the caller's function; a stream goes on without it
            note_error("fingerprint", error)
            return types_pb2.Fingerprint()

    def _next_part(self, pending: _Pending, stream: int, now: float) -> pb.AttachRequest | None:
        with self._lock:
            if stream != self._stream:
                return None
            cutting = self._cutting
            if cutting is None or cutting.stream != stream or cutting.pending is not pending:
                cutting = _Cutting(stream, pending, cut(pending.attested, self._kv_groups))
                self._cutting = cutting
        try:
            part = next(cutting.parts)
        except Exception as error:  # noqa: BLE001 - whatever it was, the sidecar is told
            note_error("attestation", error)
            reason = f"the attestation could not be encoded: {error}"
            part = next(cut(replace(pending.attested, body=None, error=reason), ()))
        if part.last:
            with self._lock:
                pending.delivery.sent(stream, self._outbox.cursor, now)
                self._cutting = None
        return pb.AttachRequest(attestation=part)

    def _make_room(self) -> None:
        """For one more body: one that was sent already goes, else the oldest says why it went."""
        bodies = [p for p in self._pending if p.attested.body is not None]
        if len(bodies) < MOST_BODIES:
            return
        sent = next((p for p in bodies if p.delivery.stream), None)
        if sent is not None:
            self._pending.remove(sent)
        else:
            reason = "gave way to newer attestations: the sidecar took none of them"
            bodies[0].attested = replace(bodies[0].attested, body=None, error=reason)

    def _is_held(self, attest_id: int) -> bool:
        return attest_id != 0 and self._held() == attest_id

    def _settle(self, now: float) -> None:
        self._sign_delivery.settle(self._stream, now)
        for pending in self._pending:
            pending.delivery.settle(self._stream, now)
        self._prune()

    def _prune(self) -> None:
        """Forgets what has arrived, except what a hold still needs an answer to."""
        self._pending = deque(
            p
            for p in self._pending
            if not p.delivery.arrived or self._is_held(p.attested.attest_id)
        )
