"""A scripted sidecar for tests: a real gRPC server on a free port whose faults are switches."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass, field

import grpc
from tokenwitness.v1 import recorder_pb2 as pb
from tokenwitness.v1 import recorder_pb2_grpc

_END = object()


def wait_for(condition: Callable[[], object], what: str, limit_s: float = 10.0) -> None:
    """Polls until the condition holds."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {limit_s} s: {what}")
        time.sleep(0.002)


@dataclass
class Script:
    """What the sidecar does; may be changed while it runs."""

    # Acknowledge each batch of records as it comes.
    acks: bool = True
    # End a stream after this many messages (the Hello counts), once per entry.
    drop_after: list[int] = field(default_factory=list)
    # Refuse Hellos with this.
    refuse: grpc.StatusCode | None = None
    # Records are read only once this is set.
    reads: threading.Event | None = None
    # Never answer a Hello.
    mute: bool = False
    # Say in Welcome that this is durable, whatever is. None: the truth.
    durable: int | None = None
    # What sources are told that they are in.
    generation: int = 0
    policy: pb.HoldPolicy = field(default_factory=pb.HoldPolicy)


class FakeSidecar(recorder_pb2_grpc.RecorderServiceServicer):
    """`messages` are all that came, in order, with the number of their stream. `ledger` is what
    is durable: the records by seq, holes expanded to one entry for each missing seq.
    """

    def __init__(self, script: Script | None = None, port: int = 0) -> None:
        self.script = script or Script()
        self.messages: list[tuple[int, pb.AttachRequest]] = []
        self.ledger: dict[int, pb.Record] = {}
        self.faults: list[str] = []
        self.streams = 0
        self._lock = threading.Lock()
        self._live: dict[int, queue.Queue[object]] = {}
        self._server = grpc.server(
            futures.ThreadPoolExecutor(16), options=(("grpc.so_reuseport", 0),)
        )
        recorder_pb2_grpc.add_RecorderServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self.address = f"127.0.0.1:{self.port}"
        self._server.start()

    def stop(self) -> None:
        for live in list(self._live.values()):
            live.put(_END)
        self._server.stop(0).wait(5)

    def say(self, response: pb.AttachResponse) -> None:
        """To all live streams."""
        for live in list(self._live.values()):
            live.put(response)

    def ack(self, seq: int) -> None:
        self.say(pb.AttachResponse(ack=pb.Ack(seq=seq, generation=self.script.generation)))

    def ask(self, attest_id: int, *, weights: bool = False, deadline_ms: int = 0) -> None:
        request = pb.AttestRequest(attest_id=attest_id, weights=weights, deadline_ms=deadline_ms)
        self.say(pb.AttachResponse(attest=request))

    def release(self, attest_id: int, *, go: bool) -> None:
        self.say(pb.AttachResponse(release=pb.Release(attest_id=attest_id, go=go)))

    def drop_streams(self, code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE) -> None:
        for live in list(self._live.values()):
            live.put(code)

    @property
    def durable(self) -> int:
        """Highest seq up to which nothing is missing."""
        with self._lock:
            seq = 0
            while seq + 1 in self.ledger:
                seq += 1
            return seq

    def of_kind(self, kind: str) -> list[pb.AttachRequest]:
        return [m for _, m in list(self.messages) if m.WhichOneof("message") == kind]

    def kinds(self, stream: int) -> list[str]:
        """Kinds of the messages of one stream, in order, heartbeats left out."""
        kinds = [m.WhichOneof("message") for n, m in list(self.messages) if n == stream]
        return [kind for kind in kinds if kind != "heartbeat"]

    def parts(self, attest_id: int) -> list[pb.AttestationPart]:
        parts = [m.attestation for m in self.of_kind("attestation")]
        return [part for part in parts if part.attest_id == attest_id]

    def Attach(  # noqa: N802 - named by the contract
        self, request_iterator: Iterator[pb.AttachRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.AttachResponse]:
        hello = next(request_iterator)
        with self._lock:
            self.streams += 1
            number = self.streams
            self.messages.append((number, hello))
        if self.script.refuse is not None:
            context.abort(self.script.refuse, "scripted")
        answers: queue.Queue[object] = queue.Queue()
        self._live[number] = answers
        context.add_callback(lambda: answers.put(_END))
        if not self.script.mute:
            told = self.script.durable
            durable = self.durable if told is None else told
            welcome = pb.Welcome(
                protocol=1,
                durable_seq=durable,
                generation=self.script.generation,
                hold=self.script.policy,
            )
            yield pb.AttachResponse(welcome=welcome)
        reader = threading.Thread(
            target=self._read, args=(number, request_iterator, answers), daemon=True
        )
        reader.start()
        try:
            while (answer := answers.get()) is not _END:
                if isinstance(answer, grpc.StatusCode):
                    context.abort(answer, "scripted")
                yield answer
        finally:
            self._live.pop(number, None)

    def _read(
        self, number: int, requests: Iterator[pb.AttachRequest], answers: queue.Queue
    ) -> None:
        count = 1
        try:
            if self.script.reads is not None:
                self.script.reads.wait(30)
            for message in requests:
                count += 1
                with self._lock:
                    drops = self.script.drop_after
                    if drops and count >= drops[0]:
                        drops.pop(0)
                        answers.put(grpc.StatusCode.UNAVAILABLE)
                        return
                    self.messages.append((number, message))
                    if message.WhichOneof("message") == "records":
                        self._store(message.records)
                if self.script.acks and message.WhichOneof("message") == "records":
                    ack = pb.Ack(seq=self.durable, generation=self.script.generation)
                    answers.put(pb.AttachResponse(ack=ack))
        except grpc.RpcError:
            pass
        except Exception as error:  # noqa: BLE001 - the test reads it in `faults`
            self.faults.append(repr(error))
        answers.put(_END)

    def _store(self, records: pb.Records) -> None:
        last = None
        for record in records.records:
            is_hole = record.WhichOneof("record") == "hole"
            count = record.hole.count if is_hole else 1
            if last is not None and record.seq != last + 1:
                self.faults.append(f"seq {record.seq} follows {last}")
            for seq in range(record.seq, record.seq + count):
                self.ledger.setdefault(seq, record)
            last = record.seq + count - 1
