"""Random lives of a ledger against lists in memory: nothing acknowledged is ever lost, and a
state as of a boundary is the straight fold of the history that led to it.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from ledger_world import (
    RAM,
    WORKER,
    Sources,
    World,
    attach,
    crash_copy,
    fold_rank,
    fold_scheduler,
)

from sidecar.ledger.errors import SequenceGapError, StateNotRecordedError
from sidecar.ledger.settings import Durability, LedgerSettings, Retention
from sidecar.ledger.sqlite import open_ledger
from sidecar.ledger.values import RecordKind, StoredRecord

NO_CUT = (1 << 63) - 1
SETTINGS = LedgerSettings(
    snapshot_bytes=1500,
    snapshot_ratio=1,
    retention_interval_s=None,
    batch_interval_s=0.001,
    durability=Durability.PROCESS,
)


@dataclass
class Life:
    """What one generation knows: all records of its history, and the step of each boundary."""

    scheduler: list[StoredRecord] = field(default_factory=list)
    rank: list[StoredRecord] = field(default_factory=list)

    def branch(self, image: World) -> "Life":
        return Life(
            [each for each in self.scheduler if each.seq <= image.scheduler_seq],
            [each for each in self.rank if each.seq <= image.rank_seq],
        )


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=RAM))
        self.path = self.folder / "0" / "ledger.db"
        self.crashes = 0
        self.ledger = open_ledger(self.path, SETTINGS)
        self.sources = Sources(0, 0)
        self.world = World()
        self.lives = [Life()]
        self.images: list[tuple[int, World]] = []
        self.removed = False
        # Whether the newest generation began at a point that retention had removed.
        self.unknown = False

    def teardown(self) -> None:
        self.ledger.flush(10)
        report = self.ledger.verify()
        assert report.problems == ()
        if not self.removed:
            kept = sum(1 for each in self.ledger.export(WORKER))
            assert report.records == kept
        self.ledger.close()
        shutil.rmtree(self.folder)

    @property
    def generation(self) -> int:
        return len(self.lives) - 1

    @initialize()
    def begin(self) -> None:
        self.sources = attach(self.ledger)
        self.ledger.flush(10)

    def put(self, source: int, history: list[StoredRecord], records: list[StoredRecord]) -> None:
        self.ledger.append(source, self.generation, records)
        history += records

    @rule(begin=st.integers(0, 2), end=st.integers(0, 5))
    def step(self, begin: int, end: int) -> None:
        done = self.world.run(begin=begin, end=end)
        life = self.lives[-1]
        self.put(self.sources.scheduler, life.scheduler, [done.launch, done.commit])
        self.put(self.sources.rank, life.rank, [done.rank])

    @rule(count=st.integers(1, 4))
    def rank_loses_records(self, count: int) -> None:
        self.put(self.sources.rank, self.lives[-1].rank, [self.world.rank_hole(count)])
        # The lost steps ran: the rank's next record is of a later one.
        for _ in range(count):
            done = self.world.run()
            self.world.rank_seq -= 1
            life = self.lives[-1]
            self.put(self.sources.scheduler, life.scheduler, [done.launch, done.commit])

    @rule(count=st.integers(1, 6))
    def send_again(self, count: int) -> None:
        life = self.lives[-1]
        own = [each for each in life.scheduler if each.seq > 0][-count:]
        appended = self.ledger.append(self.sources.scheduler, self.generation, own)
        assert (appended.accepted, appended.duplicates) == (0, len(own))

    @rule(ahead=st.integers(2, 5))
    def gap_is_refused(self, ahead: int) -> None:
        bad = StoredRecord(self.world.rank_seq + ahead, 1, RecordKind.RANK_STEP, b"")
        with pytest.raises(SequenceGapError):
            self.ledger.append(self.sources.rank, self.generation, [bad])

    @rule()
    def take_image(self) -> None:
        self.images.append((self.generation, self.world.image()))

    @precondition(lambda self: self.images)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        parent, image = data.draw(st.sampled_from(self.images))
        number = self.generation + 1
        for source, seq in (
            (self.sources.scheduler, image.scheduler_seq),
            (self.sources.rank, image.rank_seq),
        ):
            self.ledger.open_generation(source, number, seq + 1, "restored", parent=parent)
        # Whoever restores waits for that much before an acknowledgement.
        self.ledger.flush(10)
        self.lives.append(self.lives[parent].branch(image))
        self.unknown = False
        try:
            self.ledger.newest_state(self.sources.scheduler, number)
            self.ledger.newest_state(self.sources.rank, number)
        except StateNotRecordedError:
            self.unknown = True
        self.world = image.image()
        self.world.dice.seed(number)

    @rule()
    def snapshot(self) -> None:
        with self.only_removed():
            self.ledger.snapshot(self.sources.scheduler)
            self.ledger.snapshot(self.sources.rank)

    @contextmanager
    def only_removed(self) -> Iterator[None]:
        """A state may be refused only because retention took what it needs: an image without
        a mark that is older than what is kept.
        """
        try:
            yield
        except StateNotRecordedError as error:
            if not (self.removed and "removed by retention" in error.why):
                raise

    @rule()
    def crash(self) -> None:
        """A kill at any moment: acknowledged is durable, the rest is sent again."""
        acknowledged = [
            self.ledger.durable_seq(source, self.generation)
            for source in (self.sources.scheduler, self.sources.rank)
        ]
        self.crashes += 1
        copy = crash_copy(self.path, self.folder / f"{self.crashes}")
        self.ledger.close()
        self.path = copy
        self.ledger = open_ledger(copy, SETTINGS)
        assert self.ledger.lost_tail is None
        self.come_back(acknowledged)

    def come_back(self, acknowledged: list[int]) -> None:
        known = {each.key.kind: each.source_id for each in self.ledger.sources()}
        self.sources = attach(self.ledger)
        assert set(known.values()) <= {self.sources.scheduler, self.sources.rank}
        for source, name in ((self.sources.scheduler, "scheduler"), (self.sources.rank, "rank")):
            opened = {each.generation for each in self.ledger.generations(source)}
            assert opened == set(range(len(self.lives)))
            durable = self.ledger.durable_seq(source, self.generation)
            assert durable >= acknowledged[name == "rank"]
            history = getattr(self.lives[-1], name)
            self.ledger.append(source, self.generation, [x for x in history if x.seq > durable])

    @rule()
    def reopen(self) -> None:
        self.ledger.close()
        self.ledger = open_ledger(self.path, SETTINGS)
        life = self.lives[-1]
        for source, history in (
            (self.sources.scheduler, life.scheduler),
            (self.sources.rank, life.rank),
        ):
            last = history[-1].seq + history[-1].count - 1 if history else 0
            assert self.ledger.durable_seq(source, self.generation) == last

    @rule()
    def retention(self) -> None:
        removed = self.ledger.apply_retention(Retention(max_bytes=0)).records
        self.removed |= removed > 0

    @rule(data=st.data())
    def a_state_is_the_fold(self, data: st.DataObject) -> None:
        generation = data.draw(st.integers(0, self.generation))
        life = self.lives[generation]
        commits = [index for index, each in enumerate(life.scheduler) if index % 2]
        if not commits:
            return
        at = data.draw(st.sampled_from(commits))
        step = life.scheduler[at].step
        expected = fold_scheduler(life.scheduler[: at + 1]).to_bytes()
        ranks = fold_rank([each for each in life.rank if each.step <= step]).to_bytes()
        with self.only_removed():
            found = self.ledger.scheduler_state(
                self.sources.scheduler, generation, step, step, NO_CUT
            )
            assert found.to_bytes() == expected
        with self.only_removed():
            rank = self.ledger.rank_state(self.sources.rank, generation, step, NO_CUT)
            assert rank.to_bytes() == ranks

    @invariant()
    def the_newest_state_is_always_there(self) -> None:
        life = self.lives[-1]
        if self.sources.scheduler and not self.unknown:
            newest = self.ledger.newest_state(self.sources.scheduler, self.generation)
            assert newest.to_bytes() == fold_scheduler(life.scheduler).to_bytes()
            rank = self.ledger.newest_state(self.sources.rank, self.generation)
            assert rank.to_bytes() == fold_rank(life.rank).to_bytes()


LedgerMachine.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestLedgerMachine = LedgerMachine.TestCase
