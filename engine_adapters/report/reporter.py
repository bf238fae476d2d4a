"""The facade that the engine's hooks use: records in, attestations due out, the hold."""

import atexit
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata

from tokenwitness.v1 import recorder_pb2 as pb

from engine_adapters.report.attestations import AttestationBody, DueAttestation
from engine_adapters.report.config import AdapterConfig
from engine_adapters.report.counters import Counters
from engine_adapters.report.duties import Duties, sign_attest_id
from engine_adapters.report.forks import abandon_in_children
from engine_adapters.report.hold import HoldOutcome, hold
from engine_adapters.report.identity import KvGroupSpec, SourceIdentity
from engine_adapters.report.idle import IdleReader
from engine_adapters.report.log import error_count, logger, never_raises
from engine_adapters.report.outbox import Outbox
from engine_adapters.report.outgoing import Outgoing, Sighting
from engine_adapters.report.parts import Attested
from engine_adapters.report.policy import HoldPolicy
from engine_adapters.report.records import SourceRecord
from engine_adapters.report.signs import SignSeen, SignWatch
from engine_adapters.report.stream import Stream
from engine_adapters.report.ticker import Ticker

__all__ = ["Counters", "HoldOutcome", "SourceReporter"]

PROTOCOL = 1
# An AttestRequest that names no deadline.
REQUEST_LIMIT_S = 30.0


class SourceReporter:
    """Reports one source of a worker to the sidecar. No method raises into the caller.

    `put`, `note_step`, `due`, `attest` and `hold` belong to the engine's thread. A step
    boundary looks like this (a loop: a second restore can happen during a hold):

        while (due := reporter.due()) is not None:
            if not due.attested:
                reporter.attest(due, read_memory(due), step=step, idle=False)
            if reporter.hold(due) is not HoldOutcome.SUPERSEDED: ...

    `on_idle_attest` is called on a thread of the reporter when no boundary came; it returns
    None where it cannot read memory safely now (a step is running), and is asked again later.
    What it read is thrown away if the engine's thread calls `due` meanwhile.
    """

    def __init__(
        self,
        config: AdapterConfig,
        identity: SourceIdentity,
        *,
        fingerprint: Callable[[], Mapping[str, str]],
        kv_groups: Sequence[KvGroupSpec] = (),
        on_idle_attest: Callable[[DueAttestation], AttestationBody | None],
    ) -> None:
        self._config = config
        self._identity = identity
        self._kv_groups = tuple(kv_groups)
        self._policy = HoldPolicy.of_config(config)
        self._alive = False
        self._step = 0
        self._outbox = Outbox(config.queue_bytes)
        self._duties = Duties(config.idle_after_ms / 1_000)
        self._watch = SignWatch(config.suspect_after_ms, self._on_sign)
        self._outgoing = Outgoing(
            self._outbox,
            self._kv_groups,
            fingerprint=fingerprint,
            held=self._holding_for,
            heartbeat=self._heartbeat,
        )
        self._stream = Stream(
            config.address,
            self._outgoing,
            hello=self._hello,
            poll=self._watch.poll,
            on_response=self._on_response,
            hurried=self._hurried,
        )
        self._idle = IdleReader(self._duties, on_idle_attest, self._attest_idle, lambda: self._step)
        self._ticker = Ticker(self._tick)

    @never_raises(None)
    def start(self) -> None:
        """Starts the threads. The channel is made by them, later."""
        self._watch.begin()
        self._alive = True
        abandon_in_children(self)
        atexit.register(self.close)
        self._ticker.start()
        self._stream.start()

    @never_raises(None)
    def close(self, timeout: float = 2.0) -> None:
        """Sends what is left for at most `timeout` seconds, then stops. Ends a hold at once."""
        if not self._alive:
            return
        self._alive = False
        atexit.unregister(self.close)
        with self._duties.changed:
            self._duties.changed.notify_all()
        self._stream.close(timeout)
        self._ticker.stop()

    @never_raises(None)
    def put(self, record: SourceRecord) -> None:
        """Queues a record: O(1), nothing is encoded here. Never blocks on the sidecar."""
        if self._alive:
            self._outbox.put(record)
            if self._stream.waiting_for_work:
                self._stream.work()

    @never_raises(None)
    def note_step(self, step: int) -> None:
        """The last step launched (scheduler) or finished (rank)."""
        self._step = step

    @never_raises(None)
    def due(self) -> DueAttestation | None:
        """To be called at every step boundary, before the step runs."""
        if not self._alive:
            return None
        self._watch.poll()
        return self._duties.take() if self._duties.attention else None

    @property
    def suspect_after_ns(self) -> int:
        """What stood still for longer was perhaps restored. The sidecar may change it."""
        return self._watch.suspect_after_ns

    @never_raises(None)
    def stood_still(self, gap_ns: int) -> None:
        """The engine's thread waited for the device for `gap_ns` until now, too long for work. A
        sign like those of the process itself; nothing if one was seen within that time.
        """
        if self._alive:
            self._watch.stood_still(gap_ns)

    @never_raises(None)
    def attest(self, due: DueAttestation, body: AttestationBody, *, step: int, idle: bool) -> None:
        """Queues what was read, after all records put so far and before those put later."""
        if not due.attested:
            self._send(Attested(due.attest_id, step, idle, body))

    @never_raises(None)
    def attest_failed(self, due: DueAttestation, error: str) -> None:
        """Tells the sidecar why this source could not attest."""
        self._send(_failed(due, self._step, error))

    @never_raises(HoldOutcome.NOT_HELD)
    def hold(self, due: DueAttestation) -> HoldOutcome:
        """Blocks until released, only if `due.hold`; bounded by the policy."""
        if not due.hold or not self._alive:
            return HoldOutcome.NOT_HELD
        self._outgoing.beat_soon()
        self._stream.urgent()
        outcome = hold(
            due.attest_id,
            self._duties,
            policy=lambda: self._policy,
            poll=self._watch.poll,
            closed=lambda: not self._alive,
        )
        logger.warning("the engine was held after a restore: %s", outcome.value)
        return outcome

    @property
    def counters(self) -> Counters:
        """What happened so far."""
        return Counters(
            records=self._outbox.next_seq - 1,
            dropped_records=self._outbox.dropped,
            refused_records=self._outbox.refused,
            holes_sent=self._outgoing.holes_sent,
            errors=error_count(),
            connects=self._stream.connects,
            signs=self._watch.count,
            queued_bytes=self._outbox.weight,
        )

    def abandon(self) -> None:
        """In a child that was forked: its threads are the parent's, and so is the stream."""
        self._alive = False

    def _send(self, attested: Attested) -> None:
        self._outgoing.add_attestation(attested)
        self._stream.urgent()

    def _attest_idle(self, due: DueAttestation, body: AttestationBody, step: int) -> None:
        self._send(Attested(due.attest_id, step, idle=True, body=body))

    def _holding_for(self) -> int:
        return self._duties.holding_for

    def _hurried(self) -> bool:
        return self._holding_for() != 0 or self._outgoing.sign_is_urgent(time.monotonic())

    def _tick(self) -> None:
        self._watch.poll()
        self._stream.tick()
        now = time.monotonic()
        for due in self._duties.expired(now):
            self._send(_failed(due, self._step, "no step boundary came before the deadline"))
        self._idle.tick(now)

    def _on_sign(self, sign: SignSeen) -> None:
        """On the thread that saw it, while every other thread that polls waits."""
        attest_id = sign_attest_id()
        holds = self._holds_after_restore()
        now = time.monotonic()
        sighting = Sighting(
            sign,
            next_seq=self._outbox.next_seq,
            step=self._step,
            held_attest_id=attest_id if holds else 0,
            seen_at=now,
        )
        self._outgoing.add_sign(sighting)
        self._duties.sign(attest_id, hold=holds, now=now)
        self._stream.urgent()
        logger.warning(
            "perhaps restored (%s); attesting%s",
            sign.kind.value,
            " and holding the next step" if holds else "",
        )

    def _holds_after_restore(self) -> bool:
        policy = self._policy
        if not policy.waits:
            return False
        # No sidecar has ever answered: nothing was recorded that memory could be held against.
        return self._stream.connects > 0 or policy.fails_closed

    def _on_response(self, response: pb.AttachResponse) -> None:
        kind = response.WhichOneof("message")
        if kind == "welcome":
            self._policy = self._policy.told(response.welcome.hold)
            self._watch.suspect_after(self._policy.suspect_after_ms)
        elif kind == "attest":
            self._on_request(response.attest)
        elif kind == "release":
            self._duties.released(response.release.attest_id, go=response.release.go)

    def _on_request(self, request: pb.AttestRequest) -> None:
        limit_s = request.deadline_ms / 1_000 or REQUEST_LIMIT_S
        accepted = self._duties.request(
            request.attest_id, weights=request.weights, limit_s=limit_s, now=time.monotonic()
        )
        if not accepted:
            error = "too many attestations are due already"
            self._send(Attested(request.attest_id, self._step, idle=True, body=None, error=error))

    def _hello(self) -> pb.Hello:
        next_seq, step = self._outgoing.hello_position()
        return pb.Hello(
            protocol=PROTOCOL,
            worker=self._identity.worker,
            incarnation=self._identity.incarnation,
            nonce=self._identity.nonce,
            source=self._identity.encode(),
            ranks=self._identity.ranks,
            next_seq=next_seq,
            oldest_seq=min(self._outbox.oldest_seq, next_seq),
            fingerprint=self._outgoing.fingerprint(),
            process=self._watch.process.encode(),
            kv_groups=[group.encode() for group in self._kv_groups],
            step=self._step if step is None else step,
            engine_url=self._config.engine_url,
            adapter_version=_version(),
            drill=self._config.drill,
            signs_seen=self._watch.count,
            generation=self._outgoing.generation,
        )

    def _heartbeat(self) -> pb.Heartbeat:
        return pb.Heartbeat(
            step=self._step,
            next_seq=self._outbox.next_seq,
            dropped_records=self._outbox.dropped,
            errors=error_count(),
            held=self._duties.holding_for != 0,
            queued_bytes=self._outbox.weight,
        )


def _failed(due: DueAttestation, step: int, error: str) -> Attested:
    return Attested(due.attest_id, step, idle=True, body=None, error=error)


def _version() -> str:
    try:
        return metadata.version("tokenwitness")
    except metadata.PackageNotFoundError:
        return "unknown"
