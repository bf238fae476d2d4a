"""The bounded queue of a source: counts, keeps what was not acknowledged, owns up to losses.

At any moment, in order of seq and without overlap:

    acknowledged | hole | sent, not acknowledged | not sent | (next_seq)

Overflow drops the oldest, so there is at most one hole, and what is newest, which is what a
sidecar that comes back needs, stays. Pure: no thread, no clock, no I/O. Thread safe.
"""

import threading
from collections import deque

from engine_adapters.report.records import BASE_WEIGHT, HoleRecord, SourceRecord

_Entry = tuple[SourceRecord, int]


class _Steps:
    """Lowest and highest step among dropped records; 0 stands for none known."""

    __slots__ = ("first", "last")

    def __init__(self, first: int = 0, last: int = 0) -> None:
        self.first = first
        self.last = last

    def add(self, step: int) -> None:
        if step:
            self.first = min(self.first, step) if self.first else step
            self.last = max(self.last, step)

    def copy(self) -> "_Steps":
        return _Steps(self.first, self.last)


class Outbox:
    """`limit` bounds the weight of all records held, in bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._next_seq = 1
        self._acked = 0
        self._acked_step = 0
        self._sent: deque[_Entry] = deque()
        self._unsent: deque[_Entry] = deque()
        # Next seq to send. Behind the oldest unsent record: what is between is a hole.
        self._cursor = 1
        self._weight = 0
        self._unsent_weight = 0
        self._dropped = 0
        self._refused = 0
        self._reason = "queue full"
        # Steps of the whole hole, and of the part of it that this stream was not told of.
        self._hole = _Steps()
        self._untold = _Steps()

    @property
    def next_seq(self) -> int:
        return self._next_seq

    @property
    def oldest_seq(self) -> int:
        """Seq of the oldest record held, or of the hole before it; next_seq if none."""
        return self._acked + 1

    @property
    def cursor(self) -> int:
        """Seq of what is sent next; everything before it was sent on this stream or is durable."""
        return self._cursor

    @property
    def acked(self) -> int:
        return self._acked

    @property
    def dropped(self) -> int:
        """Records dropped over all time."""
        return self._dropped

    @property
    def refused(self) -> int:
        """Of the dropped, those given up because they were refused."""
        return self._refused

    @property
    def weight(self) -> int:
        """Bytes held, about."""
        return self._weight

    @property
    def unsent_weight(self) -> int:
        """Bytes not sent on this stream, about."""
        return self._unsent_weight

    @property
    def drained(self) -> bool:
        """Everything put was sent on this stream."""
        return self._cursor == self._next_seq

    def put(self, record: SourceRecord) -> int:
        """Queues the record and returns its seq. O(1) amortised."""
        try:
            weight = record.weight
        except Exception:  # noqa: BLE001 - it keeps its place in the count; encoding says what is wrong
            weight = BASE_WEIGHT
        with self._lock:
            seq = self._next_seq
            self._next_seq = seq + 1
            self._unsent.append((record, weight))
            self._weight += weight
            self._unsent_weight += weight
            if self._weight > self._limit:
                self._drop_oldest()
        return seq

    def take(self, most_bytes: int, before: int | None = None) -> list[tuple[int, SourceRecord]]:
        """Records to send next, in order of seq, at least one if there is one, then up to
        `most_bytes` of weight and below seq `before`. A hole stands in its place.
        """
        batch: list[tuple[int, SourceRecord]] = []
        with self._lock:
            end = self._next_seq if before is None else min(before, self._next_seq)
            head = self._next_seq - len(self._unsent)
            if self._cursor < min(head, end):
                batch.append((self._cursor, self._hole_before(head)))
                self._cursor = head
                self._untold = _Steps()
            while self._unsent and self._cursor < end:
                entry = self._unsent[0]
                most_bytes -= entry[1]
                if batch and most_bytes < 0:
                    break
                self._sent.append(self._unsent.popleft())
                self._unsent_weight -= entry[1]
                batch.append((self._cursor, entry[0]))
                self._cursor += 1
        return batch

    def ack(self, seq: int) -> int:
        """Everything up to `seq` is durable. Returns the seq that counted: an acknowledgement
        of what was not sent on this stream is another history's and is cut.
        """
        with self._lock:
            seq = min(seq, self._cursor - 1)
            if seq > self._acked:
                self._forget_to(seq)
            return self._acked

    def rewind(self, durable: int) -> None:
        """A new stream begins: everything after `durable` is sent again. What was acknowledged
        once and is not durable any more (a lost ledger) becomes part of the hole.
        """
        with self._lock:
            self._sent.extend(self._unsent)
            self._unsent, self._sent = self._sent, deque()
            self._unsent_weight = self._weight
            durable = min(durable, self._next_seq - 1)
            if durable < self._acked:
                self._reason = "the sidecar lost what it had acknowledged"
                # Which steps the lost records told of is not remembered: any up to the last.
                self._hole.add(1)
                self._hole.add(self._acked_step)
                self._acked = durable
            else:
                self._forget_to(durable)
            self._cursor = self._acked + 1
            self._untold = self._hole.copy()

    def give_up_sent(self, reason: str) -> int:
        """What was sent on this stream and is not durable becomes part of the hole, for
        `reason`. How many records that is.
        """
        with self._lock:
            count = len(self._sent)
            for _ in range(count):
                self._drop_one()
            if count:
                self._reason = reason
                self._refused += count
            return count

    def _head(self) -> int:
        return self._next_seq - len(self._unsent) - len(self._sent)

    def _forget_to(self, seq: int) -> None:
        """Drops what is durable from memory; the hole shrinks with it."""
        while self._head() <= seq:
            record = self._pop_oldest()
            self._acked_step = max(self._acked_step, record.step)
        self._acked = seq
        self._cursor = max(self._cursor, seq + 1)
        if self._head() == seq + 1:
            self._acked_step = max(self._acked_step, self._hole.last)
            self._hole, self._untold = _Steps(), _Steps()
            self._reason = "queue full"

    def _drop_oldest(self) -> None:
        while self._weight > self._limit and (self._sent or self._unsent):
            self._drop_one()

    def _drop_one(self) -> None:
        was_sent = bool(self._sent)
        record = self._pop_oldest()
        self._dropped += 1
        self._hole.add(record.step)
        if not was_sent:
            self._untold.add(record.step)

    def _pop_oldest(self) -> SourceRecord:
        if self._sent:
            record, weight = self._sent.popleft()
        else:
            record, weight = self._unsent.popleft()
            self._unsent_weight -= weight
        self._weight -= weight
        return record

    def _hole_before(self, head: int) -> HoleRecord:
        return HoleRecord(
            count=head - self._cursor,
            first_step=self._untold.first,
            last_step=self._untold.last,
            reason=self._reason,
        )
