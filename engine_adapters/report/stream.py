"""The connection to the sidecar: made here, lost at any moment, made again.

One thread of ours makes the channel, reads what the sidecar says and waits between attempts;
gRPC's own thread pulls the requests out of a generator. Nothing of gRPC exists before the first
attempt, and each attempt has a channel of its own, so that no state of a dead one lingers and a
process that forks finds nothing that it needs.
"""

import enum
import threading
import time
from collections.abc import Callable, Iterator

import grpc
from tokenwitness.v1 import recorder_pb2 as pb
from tokenwitness.v1 import recorder_pb2_grpc

from engine_adapters.report.backoff import Backoff
from engine_adapters.report.channel import CHANNEL_OPTIONS, REFUSALS
from engine_adapters.report.log import forget, log_once, logger, note_error
from engine_adapters.report.outgoing import BATCH_BYTES, Outgoing
from engine_adapters.report.refusals import Refusals

# How long a Hello may go unanswered.
WELCOME_S = 5.0
# Records are collected this long before they are sent, unless a batch is full.
COLLECT_S = 0.005
# Nothing waits for longer without looking around.
TICK_S = 0.05
# After a refusal that another attempt will not change; and while a restore waits.
SLOW_RETRY_S = 30.0
HURRIED_RETRY_S = 1.0
# A stream that lived this long was a good one.
GOOD_STREAM_S = 5.0

# Said again when it happens again after a stream was had.
_NEWS_AFTER_WELCOME = ("unreachable", *(f"refused:{code.name}" for code in REFUSALS))


class _End(enum.Enum):
    """How a stream ended."""

    LOST = "lost"
    # A message was refused, and the next attempt can do better.
    TO_MEND = "to_mend"
    # Before a Welcome, and after one.
    REFUSED = "refused"
    THROWN_OUT = "thrown_out"


class Stream:
    """`hello` makes the first message (called at each attempt, after a poll of the signs).
    `poll` looks for signs. `on_response` gets everything but Acks, on the reading thread.
    `hurried` tells whether a restore waits to be told or answered: attempts then come soon.
    """

    def __init__(
        self,
        address: str,
        outgoing: Outgoing,
        *,
        hello: Callable[[], pb.Hello],
        poll: Callable[[], object],
        on_response: Callable[[pb.AttachResponse], None],
        hurried: Callable[[], bool],
    ) -> None:
        self._address = address
        self._outgoing = outgoing
        self._refusals = Refusals(outgoing)
        self._hello = hello
        self._poll = poll
        self._on_response = on_response
        self._hurried = hurried
        self._work = threading.Event()
        self._urgent = threading.Event()
        self._closing = threading.Event()
        self._over = threading.Event()
        self._attempt: _Attempt | None = None
        self._thread: threading.Thread | None = None
        # Read by the engine's thread, without a lock: only a hint.
        self.waiting_for_work = False
        self.connects = 0

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="tokenwitness-stream", daemon=True)
        self._thread.start()

    def work(self) -> None:
        """There are new records."""
        self._work.set()

    def urgent(self) -> None:
        """There is something that does not wait to be collected."""
        self._urgent.set()
        self._work.set()

    def tick(self) -> None:
        """To be called often: gives up an attempt that gets no Welcome."""
        attempt = self._attempt
        if attempt is not None and attempt.unanswered(time.monotonic()):
            attempt.cancel()

    def close(self, timeout: float) -> None:
        """Sends what is left for at most `timeout` seconds, then stops."""
        self._closing.set()
        self.urgent()
        thread = self._thread
        if thread is not None:
            thread.join(timeout)
        self._over.set()
        self.urgent()
        attempt = self._attempt
        if attempt is not None:
            attempt.cancel()
        if thread is not None:
            thread.join(1.0)

    def _run(self) -> None:
        backoff = Backoff()
        ended = _End.LOST
        while not self._closing.is_set():
            began, before = time.monotonic(), ended
            ended = _End.LOST
            try:
                ended = self._try_once()
            except Exception as error:  # noqa: BLE001 - the thread must outlive whatever gRPC does
                note_error("stream", error)
            if time.monotonic() - began > GOOD_STREAM_S:
                backoff.reset()
            # What was let in and then refused may be put right by a new Hello, once.
            again = ended is _End.THROWN_OUT and before in (_End.THROWN_OUT, _End.TO_MEND)
            slow = ended is _End.REFUSED or again
            self._pause(SLOW_RETRY_S if slow else backoff.next_wait())

    def _pause(self, seconds: float) -> None:
        """Waits; shorter where a held engine needs an answer, and not when closing."""
        began = time.monotonic()
        while not self._closing.is_set():
            passed = time.monotonic() - began
            limit = min(seconds, HURRIED_RETRY_S) if self._hurried() else seconds
            # Negative: the clock is another machine's since a restore.
            if not 0 <= passed < limit:
                return
            self._closing.wait(min(TICK_S, limit - passed))

    def _try_once(self) -> "_End":
        """One stream from Hello to its end."""
        self._poll()
        attempt = _Attempt(self._outgoing.open_stream(), time.monotonic())
        with grpc.insecure_channel(self._address, options=CHANNEL_OPTIONS) as channel:
            stub = recorder_pb2_grpc.RecorderServiceStub(channel)  # type: ignore[no-untyped-call]  # generated
            call = stub.Attach(self._requests(attempt, self._hello()))
            attempt.call = call
            self._attempt = attempt
            try:
                for response in call:
                    self._receive(attempt, response)
            except grpc.RpcError:
                return self._lost(attempt, call.code(), call.details())
            finally:
                self._attempt = None
                attempt.ended.set()
                self.urgent()
                call.cancel()
        return _End.LOST

    def _receive(self, attempt: "_Attempt", response: pb.AttachResponse) -> None:
        kind = response.WhichOneof("message")
        if kind == "ack":
            self._outgoing.acked(attempt.number, response.ack.seq, response.ack.generation)
            return
        if kind == "welcome":
            # A second one would have everything sent again in the middle of the stream.
            if not attempt.welcomed.is_set():
                self._welcomed(attempt, response)
            return
        self._tell(response)

    def _welcomed(self, attempt: "_Attempt", response: pb.AttachResponse) -> None:
        welcome = response.welcome
        self._outgoing.welcomed(
            attempt.number, welcome.durable_seq, welcome.generation, time.monotonic()
        )
        self.connects += 1
        forget(*_NEWS_AFTER_WELCOME)
        logger.info("attached to the sidecar at %s", self._address)
        self._tell(response)
        attempt.welcomed.set()
        self.urgent()

    def _tell(self, response: pb.AttachResponse) -> None:
        try:
            self._on_response(response)
        except Exception as error:  # noqa: BLE001 - one bad message must not end the stream
            note_error("response", error)

    def _lost(self, attempt: "_Attempt", code: grpc.StatusCode, details: str) -> "_End":
        """Says once why there is no stream."""
        bad_message = code is grpc.StatusCode.INVALID_ARGUMENT and attempt.welcomed.is_set()
        if bad_message and self._refusals.refused(details):
            return _End.TO_MEND
        remedy = REFUSALS.get(code)
        if remedy is not None:
            log_once(
                f"refused:{code.name}",
                f"the sidecar at {self._address} refused this source ({code.name}: {details}); "
                f"{remedy}. Trying again every {SLOW_RETRY_S:.0f} s; the engine is not affected.",
            )
            return _End.THROWN_OUT if attempt.welcomed.is_set() else _End.REFUSED
        if attempt.unanswered(time.monotonic()):
            details = f"no answer within {WELCOME_S:.0f} s"
        log_once(
            "unreachable",
            f"no sidecar at {self._address} ({code.name}: {details}); the engine goes on, "
            "unrecorded where the queue overflows, and the adapter keeps trying",
        )
        return _End.LOST

    def _requests(self, attempt: "_Attempt", hello: pb.Hello) -> Iterator[pb.AttachRequest]:
        """Runs on gRPC's thread. Each message is pulled when the one before it is on its way."""
        yield pb.AttachRequest(hello=hello)
        while not attempt.welcomed.wait(TICK_S):
            if attempt.ended.is_set() or self._over.is_set():
                return
        try:
            while not (attempt.ended.is_set() or self._over.is_set()):
                message = self._outgoing.next_message(attempt.number, time.monotonic())
                # A dump can come between any two messages, and the connection may survive it.
                self._poll()
                sign = self._outgoing.sign(attempt.number, time.monotonic())
                if sign is not None:
                    yield sign
                if message is not None:
                    yield message
                    self._collect()
                elif sign is None:
                    if self._closing.is_set() and self._outgoing.drained:
                        return
                    self._await_work()
        except Exception as error:  # noqa: BLE001 - gRPC would log it at length and hang the call
            note_error("requests", error)

    def _await_work(self) -> None:
        self._work.clear()
        self.waiting_for_work = True
        # A record put before the flag was up woke nobody.
        if not self._outgoing.unsent_bytes:
            self._work.wait(TICK_S)
        self.waiting_for_work = False
        self._collect()

    def _collect(self) -> None:
        """Lets a batch grow, so that a fast engine is not answered with a thousand messages."""
        if self._outgoing.unsent_bytes < BATCH_BYTES and not self._closing.is_set():
            self._urgent.wait(COLLECT_S)
        self._urgent.clear()


class _Attempt:
    """One try to have a stream. `call` is set by the thread that makes it."""

    def __init__(self, number: int, began: float) -> None:
        self.number = number
        self.welcomed = threading.Event()
        self.ended = threading.Event()
        self.call: grpc.Call | None = None
        self._began = began

    def unanswered(self, now: float) -> bool:
        """Negative ages: the clock is another machine's since a restore."""
        return not self.welcomed.is_set() and not 0 <= now - self._began <= WELCOME_S

    def cancel(self) -> None:
        if self.call is not None:
            self.call.cancel()
