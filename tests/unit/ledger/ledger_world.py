"""A small worker that records real wire messages, and what tests do to ledger files."""

import copy
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tokenwitness.v1 import recorder_pb2 as pb

from sidecar.core.events import KvGroup, SourceKey, SourceKind, Witness
from sidecar.core.rank_state import RankState
from sidecar.core.scheduler_state import SchedulerState
from sidecar.ledger.settings import LedgerSettings
from sidecar.ledger.sqlite import SqliteLedger, open_ledger
from sidecar.ledger.values import RecordKind, SourceDescription, StoredRecord
from sidecar.wire.payload import decode_payload

SCHEDULER = SourceKey(SourceKind.SCHEDULER)
RANK = SourceKey(SourceKind.RANK, 0)
GROUP = KvGroup(
    group=0, block_size=16, blocks=64, layers=(0, 1, 2, 3), digest_layers=(2, 2), row_bytes=64
)
DESCRIPTION = SourceDescription(
    nonce=7, ranks=1, fingerprint={"engine": "test"}, kv_groups=(GROUP,)
)
# None: the usual folder for temporary files.
RAM = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
WORKER = "worker-1"
INCARNATION = "life-1"

# Small, and without a thread of its own accord, so that tests decide.
QUIET = LedgerSettings(snapshot_bytes=1 << 40, retention_interval_s=None, batch_interval_s=0.002)


@dataclass
class World:
    """A scheduler and its rank. `copy.deepcopy` is a checkpoint image of it."""

    dice: random.Random = field(default_factory=lambda: random.Random(1))
    step: int = 0
    scheduler_seq: int = 0
    rank_seq: int = 0
    positions: dict[int, int] = field(default_factory=dict)
    lengths: dict[int, int] = field(default_factory=dict)
    born: int = 0

    def image(self) -> "World":
        return copy.deepcopy(self)

    def run(self, *, begin: int = 0, end: int | None = None) -> "Recorded":
        """One step of all sessions; `begin` sessions start before it, one may end after it."""
        self.step += 1
        launch = pb.Launch(step=self.step)
        for _ in range(begin):
            self._start(launch)
        rank = pb.RankStep(step=self.step)
        kv = rank.kv.add(kv_group=0)
        digests = []
        for row, position in self.positions.items():
            launch.rows.append(row)
            launch.starts.append(position)
            launch.counts.append(self.lengths[row] - position)
            for written in range(position, self.lengths[row]):
                kv.slots.append((row + 1) * 32 + written % 32)
                digests += [self.dice.getrandbits(64), self.dice.getrandbits(64)]
        kv.digests = np.array(digests, dtype="<u8").tobytes()
        commit = pb.Commit(step=self.step)
        for row in self.positions:
            commit.tokens.append(self.dice.randrange(50_000))
            self.positions[row] = self.lengths[row]
            self.lengths[row] += 1
        if end in self.positions:
            commit.ended.add(row=end, reason=pb.SESSION_END_REASON_STOPPED)
            del self.positions[end], self.lengths[end]
        return Recorded(
            self._scheduler(launch=launch),
            self._scheduler(commit=commit),
            self._rank(rank_step=rank),
        )

    def hole(self, count: int = 2) -> StoredRecord:
        """The scheduler lost `count` records of the next steps."""
        first = self.scheduler_seq + 1
        self.scheduler_seq += count
        hole = pb.Hole(count=count, first_step=self.step + 1, last_step=self.step + 1, reason="x")
        self.step += 1
        record = pb.Record(seq=first, hole=hole)
        return StoredRecord(
            first, hole.first_step, RecordKind.HOLE, record.SerializeToString(), count
        )

    def rank_hole(self, count: int) -> StoredRecord:
        """The rank lost `count` records; the scheduler saw those steps run empty."""
        first = self.rank_seq + 1
        self.rank_seq += count
        hole = pb.Hole(
            count=count, first_step=self.step + 1, last_step=self.step + count, reason="lost"
        )
        record = pb.Record(seq=first, hole=hole)
        return StoredRecord(
            first, hole.first_step, RecordKind.HOLE, record.SerializeToString(), count
        )

    def _start(self, launch: pb.Launch) -> None:
        row = next(each for each in range(64) if each not in self.positions)
        self.born += 1
        prompt = [self.dice.randrange(50_000) for _ in range(self.dice.randrange(1, 9))]
        launch.started.add(row=row, session_id=f"session-{self.born}", prompt_tokens=prompt)
        launch.blocks.add(row=row, kv_group=0, offset=0, blocks=[2 * row + 2, 2 * row + 3])
        self.positions[row] = 0
        self.lengths[row] = len(prompt)

    def _scheduler(self, **body: pb.Launch | pb.Commit) -> StoredRecord:
        self.scheduler_seq += 1
        return _stored(pb.Record(seq=self.scheduler_seq, **body), self.step)

    def _rank(self, **body: pb.RankStep) -> StoredRecord:
        self.rank_seq += 1
        return _stored(pb.Record(seq=self.rank_seq, **body), self.step)


@dataclass(frozen=True)
class Recorded:
    launch: StoredRecord
    commit: StoredRecord
    rank: StoredRecord


def _stored(record: pb.Record, step: int) -> StoredRecord:
    kinds = {
        "launch": RecordKind.LAUNCH,
        "commit": RecordKind.COMMIT,
        "rank_step": RecordKind.RANK_STEP,
    }
    kind = kinds[record.WhichOneof("record")]
    return StoredRecord(record.seq, step, kind, record.SerializeToString())


@dataclass
class Sources:
    scheduler: int
    rank: int


def attach(ledger: SqliteLedger, incarnation: str = INCARNATION) -> Sources:
    return Sources(
        ledger.source(WORKER, incarnation, SCHEDULER, DESCRIPTION).source_id,
        ledger.source(WORKER, incarnation, RANK, DESCRIPTION).source_id,
    )


def record(ledger: SqliteLedger, sources: Sources, recorded: Recorded, generation: int = 0) -> None:
    ledger.append(sources.scheduler, generation, [recorded.launch, recorded.commit])
    ledger.append(sources.rank, generation, [recorded.rank])


def fold_scheduler(records: list[StoredRecord], *, late_from: int | None = None) -> SchedulerState:
    """A straight fold; records from seq `late_from` on are late."""
    state = SchedulerState()
    for each in records:
        late = late_from is not None and each.seq >= late_from
        state.apply(decode_payload(each.payload), Witness.LATE if late else Witness.WITNESSED)
    return state


def fold_rank(records: list[StoredRecord]) -> RankState:
    state = RankState((GROUP,))
    for each in records:
        state.apply(decode_payload(each.payload))
    return state


@contextmanager
def opened(path: Path, settings: LedgerSettings = QUIET) -> Iterator[SqliteLedger]:
    ledger = open_ledger(path, settings)
    try:
        yield ledger
    finally:
        ledger.close()


def crash_copy(path: Path, folder: Path) -> Path:
    """What a killed process would leave behind: the files as they are, nothing closed."""
    folder.mkdir()
    # The tip first: a copy is not taken at one moment, and the tip is never ahead of the log.
    for suffix in (".tip", "", "-wal"):
        source = path.with_name(path.name + suffix)
        if source.exists():
            shutil.copy(source, folder / source.name)
    return folder / path.name


def flip(path: Path, needle: bytes, *, at: int = 0) -> None:
    """Flips one bit of the first place in a file that holds `needle`."""
    data = bytearray(path.read_bytes())
    found = data.find(needle)
    assert found >= 0, "the bytes to damage are not in the file"
    data[found + at] ^= 1
    path.write_bytes(data)


def damage_snapshot(path: Path) -> None:
    """Flips one bit in the middle of the newest snapshot."""
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT data FROM snapshots ORDER BY id DESC LIMIT 1"
        (data,) = connection.execute(query).fetchone()
    flip(path, data[-20:])
