"""A scripted adapter: says over a real stream exactly what a test tells it to, no more."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
from tokenwitness.v1 import recorder_pb2 as pb
from tokenwitness.v1 import recorder_pb2_grpc, types_pb2

WAIT_S = 10.0
BLOCKS = 64
BLOCK_SIZE = 4


def kv_group() -> types_pb2.KvGroup:
    return types_pb2.KvGroup(
        group=0,
        block_size=BLOCK_SIZE,
        blocks=BLOCKS,
        layers=[0, 1],
        digest_layers=[1, 1],
        row_bytes=64,
    )


def fingerprint(**changes: str) -> types_pb2.Fingerprint:
    values = {"engine": "scripted", "model": "m", **changes}
    return types_pb2.Fingerprint(names=list(values), values=list(values.values()))


def process(pid: int = 100, start_ticks: int = 5) -> pb.ProcessIdentity:
    return pb.ProcessIdentity(pid=pid, start_ticks=start_ticks, boot_id="boot", host="host")


def launch(seq: int, step: int, **fields: Any) -> pb.Record:
    return pb.Record(seq=seq, launch=pb.Launch(step=step, **fields))


def commit(seq: int, step: int, **fields: Any) -> pb.Record:
    return pb.Record(seq=seq, commit=pb.Commit(step=step, **fields))


def session_start(row: int, session_id: str, prompt: list[int]) -> pb.SessionStart:
    sampling = types_pb2.Sampling(temperature=0.0, top_p=1.0, repetition_penalty=1.0)
    return pb.SessionStart(row=row, session_id=session_id, prompt_tokens=prompt, sampling=sampling)


def first_steps(session_id: str = "s", steps: int = 1) -> list[pb.Record]:
    """Records 1 to 2 * steps: one session of 3 prompt tokens, `steps` steps of it."""
    records = [
        launch(
            1,
            1,
            started=[session_start(0, session_id, [1, 2, 3])],
            rows=[0],
            starts=[0],
            counts=[3],
            blocks=[pb.BlockUpdate(row=0, kv_group=0, offset=0, blocks=[1])],
        ),
        commit(2, 1, tokens=[10]),
    ]
    for step in range(2, steps + 1):
        records.append(launch(len(records) + 1, step, rows=[0], starts=[step + 1]))
        records.append(commit(len(records) + 1, step, tokens=[10 + step]))
    return records


def rank_step(seq: int, step: int, slots: list[int] | None = None) -> pb.Record:
    slots = [BLOCK_SIZE] if slots is None else slots
    digests = bytes(16 * len(slots))
    return pb.Record(
        seq=seq,
        rank_step=pb.RankStep(step=step, kv=[pb.KvRows(kv_group=0, slots=slots, digests=digests)]),
    )


@dataclass
class Script:
    """What a source says of itself."""

    worker: str = "w"
    incarnation: str = "life-1"
    nonce: int = 7
    rank: int | None = None
    ranks: int = 1
    next_seq: int = 1
    oldest_seq: int = 1
    signs_seen: int = 0
    # What the sidecar had told this memory.
    generation: int = 0
    process: pb.ProcessIdentity = field(default_factory=process)
    changes: dict[str, Any] = field(default_factory=dict)

    def but(self, **changes: Any) -> "Script":
        return replace(self, **changes)

    def hello(self) -> pb.Hello:
        kind = types_pb2.SOURCE_KIND_SCHEDULER
        if self.rank is not None:
            kind = types_pb2.SOURCE_KIND_RANK
        hello = pb.Hello(
            protocol=1,
            worker=self.worker,
            incarnation=self.incarnation,
            nonce=self.nonce,
            source=types_pb2.Source(kind=kind, rank=self.rank or 0),
            ranks=self.ranks,
            next_seq=self.next_seq,
            oldest_seq=self.oldest_seq,
            fingerprint=fingerprint(),
            process=self.process,
            kv_groups=[] if self.rank is None else [kv_group()],
            signs_seen=self.signs_seen,
            generation=self.generation,
            adapter_version="test",
        )
        for name, value in self.changes.items():
            setattr(hello, name, value)
        return hello


class ScriptedSource:
    """One open stream. `expect` reads until the wanted kind of message comes."""

    def __init__(self, call: Any) -> None:
        self.call = call

    async def say(self, **message: Any) -> None:
        await self.call.write(pb.AttachRequest(**message))

    async def records(self, *records: pb.Record) -> None:
        await self.say(records=pb.Records(records=records))

    async def beat(self, **fields: Any) -> None:
        await self.say(heartbeat=pb.Heartbeat(**fields))

    async def sign(self, **fields: Any) -> None:
        given = {
            "kind": pb.SIGN_KIND_STOOD_STILL,
            "process": process(),
            "next_seq": 1,
            "signs_seen": 1,
            "fingerprint": fingerprint(),
            **fields,
        }
        await self.say(sign=pb.Sign(**given))

    async def expect(self, kind: str) -> Any:
        async with asyncio.timeout(WAIT_S):
            while True:
                message = await self.call.read()
                assert message is not grpc.aio.EOF, (
                    f"the stream ended with {await self.call.code()}: {await self.call.details()}"
                )
                if message.WhichOneof("message") == kind:
                    return getattr(message, kind)

    async def acked(self, seq: int) -> None:
        while (await self.expect("ack")).seq < seq:
            pass

    async def ended(self) -> tuple[grpc.StatusCode, str]:
        """The status with which the sidecar ends the stream."""
        async with asyncio.timeout(WAIT_S):
            try:
                while await self.call.read() is not grpc.aio.EOF:
                    pass
            except grpc.aio.AioRpcError:
                pass
            return await self.call.code(), await self.call.details()

    @asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """Sends heartbeats all the while, as a live adapter does."""

        async def beat() -> None:
            while True:
                await self.beat()
                await asyncio.sleep(0.02)

        task = asyncio.create_task(beat())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def hang_up(self) -> None:
        self.call.cancel()
        await asyncio.gather(self.call.code(), return_exceptions=True)


@asynccontextmanager
async def channel_to(address: str) -> AsyncIterator[grpc.aio.Channel]:
    channel = grpc.aio.insecure_channel(address)
    try:
        yield channel
    finally:
        await channel.close()


class ScriptedWorker:
    """Opens streams to one sidecar."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = recorder_pb2_grpc.RecorderServiceStub(channel)

    async def open(self, *first: pb.AttachRequest) -> ScriptedSource:
        source = ScriptedSource(self._stub.Attach())
        # A sidecar that refuses at once has ended the stream already; `ended` tells.
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            for message in first:
                await source.call.write(message)
        return source

    async def attach(self, script: Script) -> tuple[ScriptedSource, pb.Welcome]:
        source = await self.open(pb.AttachRequest(hello=script.hello()))
        return source, await source.expect("welcome")

    async def refused(self, script: Script) -> tuple[grpc.StatusCode, str]:
        source = await self.open(pb.AttachRequest(hello=script.hello()))
        return await source.ended()
