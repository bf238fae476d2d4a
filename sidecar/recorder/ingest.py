"""Records of one source: checked, folded, handed to the ledger, acknowledged once durable."""

import asyncio
from collections.abc import Callable

from tokenwitness.v1 import recorder_pb2 as pb

from sidecar.core.errors import RecordError
from sidecar.core.events import Commit, Event, Hole, Launch, RankStep, SourceKind, WeightDigests
from sidecar.ledger.errors import LedgerError, QueueFullError
from sidecar.ledger.interface import Ledger
from sidecar.ledger.values import RecordKind, StoredRecord
from sidecar.metrics import Metrics, source_label
from sidecar.recorder.checks import check_rank_step
from sidecar.recorder.errors import RefusalCause, StreamRefusedError
from sidecar.registry import SourceLink, SourceRuntime, WorkerRuntime
from sidecar.wire import codec
from sidecar.wire.errors import MalformedMessage

# Longest that a stream waits for the ledger to take more before it is told to come back.
ROOM_WAIT_S = 30.0
MAX_SEQ = 1 << 62

_KINDS: dict[type, RecordKind] = {
    Launch: RecordKind.LAUNCH,
    Commit: RecordKind.COMMIT,
    RankStep: RecordKind.RANK_STEP,
    Hole: RecordKind.HOLE,
    WeightDigests: RecordKind.WEIGHTS,
}
_ALLOWED = {
    SourceKind.SCHEDULER: (Launch, Commit, Hole),
    SourceKind.RANK: (RankStep, Hole, WeightDigests),
}


class Intake:
    """Takes in the records of one stream, in order.

    What was taken in is at most `max_unacked_bytes` ahead of what is durable: `take` returns
    only when there is room for more, so the stream is not read and the adapter's queue fills.
    """

    def __init__(
        self,
        worker: WorkerRuntime,
        source: SourceRuntime,
        link: SourceLink,
        ledger: Ledger,
        metrics: Metrics,
        *,
        max_unacked_bytes: int,
    ) -> None:
        self._worker = worker
        self._source = source
        self._link = link
        self._ledger = ledger
        self._max_unacked_bytes = max_unacked_bytes
        self._groups = {group.group: group for group in source.kv_groups}
        labels = (worker.name, source_label(source.key))
        self._records = metrics.records.labels(*labels)
        self._bytes = metrics.record_bytes.labels(*labels)
        self._duplicates = metrics.duplicates.labels(*labels)
        self._holes = metrics.hole_records.labels(*labels)
        self._steps = metrics.steps.labels(*labels)
        self._tokens = metrics.tokens.labels(worker.name)

    async def take(self, records: pb.Records) -> None:
        """Takes in a batch. Records before a bad one are kept.

        Raises:
            StreamRefusedError: a record is malformed, of the wrong kind or out of order, or
                the ledger takes no more.

        """
        stored: list[StoredRecord] = []
        refused: StreamRefusedError | None = None
        for index, record in enumerate(records.records):
            try:
                one = self._check(record)
            except (MalformedMessage, RecordError) as error:
                cause = RefusalCause.MALFORMED
                refused = StreamRefusedError(cause, f"records[{index}] (seq {record.seq}): {error}")
            except StreamRefusedError as error:
                refused = StreamRefusedError(error.cause, f"records[{index}]: {error.text}")
            else:
                if one is not None:
                    stored.append(one)
                continue
            break
        if stored:
            await self._store(stored)
        if refused is not None:
            raise refused

    async def fill_gap(self, oldest_seq: int, step: int) -> None:
        """Writes a Hole for what the adapter no longer holds and the ledger does not have.

        Raises:
            StreamRefusedError: the ledger takes no more.

        """
        missing = oldest_seq - 1 - self._source.received_seq
        if missing <= 0:
            return
        hole = pb.Hole(
            count=missing,
            first_step=self._source.recorded_step + 1,
            last_step=max(step, self._source.recorded_step + 1),
            reason="neither the adapter nor the ledger has these records",
        )
        await self.take(
            pb.Records(records=[pb.Record(seq=self._source.received_seq + 1, hole=hole)])
        )

    def _check(self, record: pb.Record) -> StoredRecord | None:
        source = self._source
        expected = source.received_seq + 1
        count = record.hole.count if record.WhichOneof("record") == "hole" else 1
        if not 1 <= record.seq <= MAX_SEQ or not 1 <= count <= MAX_SEQ:
            raise StreamRefusedError(
                RefusalCause.MALFORMED,
                f"seq is {record.seq} and it stands for {count} records, expected 1 to {MAX_SEQ}",
            )
        if record.seq + count <= expected:
            self._duplicates.inc()
            return None
        if record.seq > expected:
            raise StreamRefusedError(
                RefusalCause.OUT_OF_ORDER,
                f"seq is {record.seq}, expected {expected}; what was dropped must be replaced by "
                "a hole",
            )
        event = codec.decode_record(record)
        if not isinstance(event, _ALLOWED[source.key.kind]):
            raise StreamRefusedError(
                RefusalCause.MALFORMED,
                f"record is {record.WhichOneof('record')!r}, which {source.key} does not send",
            )
        step = self._apply(event)
        source.received_seq = record.seq + count - 1
        return StoredRecord(
            seq=record.seq,
            step=step,
            kind=_KINDS[type(event)],
            payload=record.SerializeToString(),
            count=count,
        )

    def _apply(self, event: Event) -> int:
        """Brings the live state forward; returns the step that the record is of."""
        source = self._source
        match event:
            case Hole():
                source.hole_records += event.count
                self._holes.inc(event.count)
                if source.key.kind is SourceKind.SCHEDULER:
                    self._worker.live.fold(event)
                return event.first_step
            case WeightDigests():
                return source.recorded_step
            case RankStep():
                check_rank_step(event, self._groups, source.recorded_step)
                source.recorded_step = event.step
                self._steps.inc()
            case Launch():
                self._worker.live.fold(event)
                source.recorded_step = event.step
            case Commit():
                self._worker.live.fold(event)
                self._steps.inc()
                self._tokens.inc(len(event.tokens))
        return event.step

    async def _store(self, stored: list[StoredRecord]) -> None:
        source = self._source
        size = sum(len(record.payload) for record in stored)
        await self._append(stored)
        source.took(stored[-1].seq + stored[-1].count - 1, size)
        self._records.inc(len(stored))
        self._bytes.inc(size)
        self._worker.changes.notify()
        room = await self._worker.changes.wait(
            lambda: source.unacked_bytes <= self._max_unacked_bytes, ROOM_WAIT_S
        )
        if not room:
            raise StreamRefusedError(
                RefusalCause.LEDGER,
                f"{source.unacked_bytes} bytes were not durable after {ROOM_WAIT_S:.0f} s",
            )

    async def _append(self, stored: list[StoredRecord]) -> None:
        source = self._source
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ROOM_WAIT_S
        try:
            while True:
                self._check_present()
                try:
                    self._ledger.append(source.source_id, source.generation, stored)
                except QueueFullError:
                    left = deadline - loop.time()
                    if left <= 0 or not await _room(self._ledger.when_room, left):
                        raise
                else:
                    return
        except LedgerError as error:
            self._take_back(stored, str(error))
            raise StreamRefusedError(RefusalCause.LEDGER, str(error)) from error
        except BaseException:
            self._take_back(stored, "the stream ended before its records were stored")
            raise

    def _check_present(self) -> None:
        if self._source.link is not self._link:
            raise StreamRefusedError(
                RefusalCause.SUPERSEDED, f"{self._source.key} attached again over another stream"
            )

    def _take_back(self, stored: list[StoredRecord], why: str) -> None:
        """What was folded was not stored: the source has to send it again."""
        source = self._source
        source.received_seq = min(source.received_seq, stored[0].seq - 1)
        source.recorded_step = 0
        if source.key.kind is SourceKind.SCHEDULER:
            self._worker.live.stale = why


async def _room(when_room: Callable[[Callable[[], None]], None], timeout_s: float) -> bool:
    """Whether the ledger called back within `timeout_s` that there is room."""
    loop = asyncio.get_running_loop()
    room = asyncio.Event()

    def tell() -> None:
        loop.call_soon_threadsafe(room.set)

    when_room(tell)
    try:
        await asyncio.wait_for(room.wait(), timeout_s)
    except TimeoutError:
        return False
    return True
