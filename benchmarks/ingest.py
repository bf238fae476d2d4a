"""How many token records per second the sidecar takes in on one core, and what a token costs.

    python -m benchmarks.ingest

Real messages of a decoding worker (one Launch, Commit and RankStep per step, four digests per
token) go the way of a stream: parse, decode, check, fold the live state, append, commit, and
the ledger's own snapshots. Everything runs on one core. A token record is one token on one
rank. Bytes per token: the closed ledger file, snapshots included, by token and rank; the
scheduler's part is borne by the one rank.
"""

import argparse
import os
import random
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenwitness.v1 import recorder_pb2 as pb

from benchmarks.results_file import write_result
from sidecar.core.events import KvGroup, RankStep, SourceKey, SourceKind
from sidecar.core.scheduler_state import SchedulerState
from sidecar.ledger.errors import QueueFullError
from sidecar.ledger.settings import LedgerSettings
from sidecar.ledger.sqlite import SqliteLedger, open_ledger
from sidecar.ledger.values import RecordKind, SourceDescription, StoredRecord
from sidecar.recorder.checks import check_rank_step
from sidecar.wire.codec import decode_record

BLOCK = 16
DIGESTS = 4
PROMPT = 64
OUTPUT = 512
VOCABULARY = 50_000
# Steps that one message carries, so that it stays below 256 KiB.
STEPS_PER_MESSAGE = 16
TARGETS = {"records_per_s": 200_000, "bytes_per_token": 48}

KINDS = {
    "launch": RecordKind.LAUNCH,
    "commit": RecordKind.COMMIT,
    "rank_step": RecordKind.RANK_STEP,
}


@dataclass
class Session:
    computed: int
    ends_at: int
    table: list[int]


@dataclass
class Worker:
    """Decodes `batch` sessions at once; each that ends makes room for the next one."""

    batch: int
    dice: random.Random = field(default_factory=lambda: random.Random(7))
    step: int = 0
    born: int = 0
    tokens: int = 0

    def __post_init__(self) -> None:
        self.blocks = 1 + 2 * self.batch * (PROMPT + OUTPUT + BLOCK) // BLOCK
        self.free = list(range(self.blocks - 1, 0, -1))
        self.sessions: dict[int, Session] = {}
        self.group = KvGroup(
            group=0,
            block_size=BLOCK,
            blocks=self.blocks,
            layers=tuple(range(32)),
            digest_layers=(8,) * DIGESTS,
            row_bytes=4096,
        )

    def messages(self, steps: int) -> Iterator[tuple[bytes, bytes]]:
        """Serialized requests of the scheduler's and of the rank's stream."""
        scheduler_seq = rank_seq = 0
        while steps > 0:
            scheduler, rank = pb.AttachRequest(), pb.AttachRequest()
            for _ in range(min(steps, STEPS_PER_MESSAGE)):
                launch = scheduler.records.records.add(seq=scheduler_seq + 1)
                commit = scheduler.records.records.add(seq=scheduler_seq + 2)
                written = rank.records.records.add(seq=rank_seq + 1)
                self._step(launch.launch, commit.commit, written.rank_step)
                scheduler_seq, rank_seq = scheduler_seq + 2, rank_seq + 1
            steps -= STEPS_PER_MESSAGE
            yield scheduler.SerializeToString(), rank.SerializeToString()

    def _step(self, launch: pb.Launch, commit: pb.Commit, rank: pb.RankStep) -> None:
        self.step += 1
        launch.step = commit.step = rank.step = self.step
        kv = rank.kv.add(kv_group=0)
        started = self._start(launch)
        for row, session in self.sessions.items():
            count = session.computed if row in started else 1
            first = 0 if row in started else session.computed
            launch.rows.append(row)
            launch.starts.append(first)
            if started:
                launch.counts.append(count)
            self._grow(launch, row, session, first + count)
            for position in range(first, first + count):
                block = session.table[position // BLOCK]
                kv.slots.append(block * BLOCK + position % BLOCK)
            session.computed = first + count
            self.tokens += count
            commit.tokens.append(self.dice.randrange(VOCABULARY))
            if session.computed >= session.ends_at:
                commit.ended.add(row=row, reason=pb.SESSION_END_REASON_LENGTH)
        kv.digests = self.dice.randbytes(8 * DIGESTS * len(kv.slots))
        for end in commit.ended:
            self.free += self.sessions.pop(end.row).table

    def _start(self, launch: pb.Launch) -> set[int]:
        started = set()
        for row in range(self.batch):
            if row in self.sessions:
                continue
            self.born += 1
            started.add(row)
            prompt = [self.dice.randrange(VOCABULARY) for _ in range(PROMPT)]
            name = f"cmpl-{self.dice.getrandbits(128):032x}-0"
            launch.started.add(row=row, session_id=name, prompt_tokens=prompt)
            # The first generation ends at different times, as in a server that has run for long.
            output = OUTPUT if self.step > 1 else self.dice.randrange(1, OUTPUT)
            self.sessions[row] = Session(PROMPT, PROMPT + output, [])
        return started

    def _grow(self, launch: pb.Launch, row: int, session: Session, length: int) -> None:
        offset = len(session.table)
        while len(session.table) * BLOCK < length:
            session.table.append(self.free.pop())
        if len(session.table) > offset:
            launch.blocks.add(row=row, kv_group=0, offset=offset, blocks=session.table[offset:])


class Intake:
    """The way of the recorder's streams, without gRPC."""

    def __init__(self, ledger: SqliteLedger, group: KvGroup) -> None:
        self._ledger = ledger
        self._groups = {group.group: group}
        described = SourceDescription(nonce=1, ranks=1, kv_groups=(group,))
        self._ids = [
            ledger.source("bench", "life", SourceKey(kind), described).source_id
            for kind in (SourceKind.SCHEDULER, SourceKind.RANK)
        ]
        self._live = SchedulerState()
        self._rank_step = 0

    def take(self, index: int, message: bytes) -> None:
        """One request of the scheduler's (0) or the rank's (1) stream."""
        stored = []
        for record in pb.AttachRequest.FromString(message).records.records:
            event = decode_record(record)
            if isinstance(event, RankStep):
                check_rank_step(event, self._groups, self._rank_step)
                self._rank_step = event.step
            else:
                self._live.apply(event)  # type: ignore[arg-type]
            kind = KINDS[record.WhichOneof("record") or ""]
            payload = record.SerializeToString()
            stored.append(StoredRecord(record.seq, event.step, kind, payload))  # type: ignore[union-attr]
        while True:
            try:
                self._ledger.append(self._ids[index], 0, stored)
            except QueueFullError:
                room = threading.Event()
                self._ledger.when_room(room.set)
                room.wait(10)
            else:
                return


def measure(batch: int, steps: int, folder: Path) -> dict[str, Any]:
    worker = Worker(batch)
    messages = list(worker.messages(steps))
    path = folder / f"ledger-{batch}.db"
    settings = LedgerSettings(retention_interval_s=None)
    ledger = open_ledger(path, settings)
    intake = Intake(ledger, worker.group)
    cpu, began = time.process_time(), time.perf_counter()
    for scheduler, rank in messages:
        intake.take(0, scheduler)
        intake.take(1, rank)
    ledger.flush(60)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    report = ledger.verify()
    if not report.sound or report.records != 3 * steps:
        raise SystemExit(f"the ledger is not sound: {report}")
    ledger.close(60)
    return {
        "batch": batch,
        "steps": steps,
        "token_records": worker.tokens,
        "seconds": round(seconds, 3),
        "cpu_seconds": round(cpu_seconds, 3),
        "records_per_s": round(worker.tokens / seconds),
        "records_per_cpu_s": round(worker.tokens / cpu_seconds),
        "steps_per_s": round(steps / seconds),
        "bytes_per_token": round(path.stat().st_size / worker.tokens, 2),
        "message_bytes_per_token": round(
            sum(len(part) for pair in messages for part in pair) / worker.tokens, 2
        ),
        "snapshots": report.snapshots,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=16_000, help="decode steps per batch size")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64, 256])
    arguments = parser.parse_args()
    core = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    with tempfile.TemporaryDirectory() as folder:
        runs = []
        for batch in arguments.batches:
            runs.append(measure(batch, arguments.steps, Path(folder)))
            print(runs[-1])
    last = runs[-1]
    figures = {
        "records_per_s": last["records_per_s"],
        "bytes_per_token": last["bytes_per_token"],
        "at_batch": last["batch"],
        "targets": TARGETS,
        "cores_used": 1,
        "sqlite": sqlite3.sqlite_version,
        "load_average": os.getloadavg()[0],
        "durability": LedgerSettings().durability.name,
        "runs": runs,
    }
    print(write_result("ingest-sqlite", figures))


if __name__ == "__main__":
    main()
