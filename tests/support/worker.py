"""A real worker for end-to-end tests: sidecar, vLLM server with the adapter, CRIU."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tools.demo.criu import Checkpoint, Criu
from tools.demo.engine import Engine, engine_python, small_model, start_engine
from tools.demo.errors import DemoError
from tools.demo.places import CHECKOUT, free_port
from tools.demo.sidecar import (
    EXACT_ENGINE,
    VERDICT_TIMEOUT_S,
    Sidecar,
    restart_sidecar,
    start_sidecar,
)
from tools.demo.streams import SessionPlan, Streams, open_streams
from tools.demo.verdicts import Verdict
from tools.demo.waiting import wait_for

NAME = "e2e"


@dataclass
class Worker:
    """Started once, dumped and restored by many tests.

    `folder` takes logs, ledger and maps; `images` takes images, which are large and go as soon
    as they were restored.
    """

    criu: Criu
    folder: Path
    images: Path
    sidecar: Sidecar = field(init=False)
    engine: Engine = field(init=False)

    def __post_init__(self) -> None:
        self.sidecar = start_sidecar(self.folder, EXACT_ENGINE)

    def start_engine(self) -> None:
        """Starts the engine (half a minute) and waits until all of it has attached."""
        port = free_port()
        python = engine_python()
        self.engine = start_engine(
            python,
            small_model(python),
            self.folder / "engine.log",
            flags=self.sidecar.engine_flags(NAME, f"http://127.0.0.1:{port}"),
            environment={
                "TOKENWITNESS_DRILL": "1",
                "TOKENWITNESS_DRILL_FOLDER": str(self.folder),
                "PYTHONPATH": str(CHECKOUT),
            },
            port=port,
            wrapper=[str(python), "-m", "tests.support.inner_clients", str(self.folder)],
        )
        self.sidecar.wait_attached(NAME)

    def end(self) -> None:
        if hasattr(self, "engine"):
            self.engine.tree.end()
        self.sidecar.tree.end()

    def open(self, plans: Sequence[SessionPlan]) -> Streams:
        return open_streams(self.engine.url, self.engine.model, plans)

    def open_inside(self, plan: SessionPlan) -> "InnerStream":
        """Starts a client that is dumped and restored with the engine."""
        where = self.folder / f"{plan.name}.plan"
        document = {**asdict(plan), "url": self.engine.url, "model": self.engine.model}
        unfinished = where.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(document))
        unfinished.rename(where)
        return InnerStream(plan, where.with_suffix(".tokens"))

    def uninterrupted(self, streams: Streams) -> dict[str, list[int]]:
        """What the same sessions give, as far as these went, when nothing happens to them."""
        again = self.open([s.plan.limited_to(len(s.tokens)) for s in streams.all])
        again.wait_done()
        again.raise_errors()
        return again.tokens()

    def marked_dump(self, mark: str) -> Checkpoint:
        """Mark, dump, mark completed."""
        self.sidecar.mark(NAME, mark)
        checkpoint = self.criu.dump(self.engine.tree, self.images / mark)
        self.sidecar.mark_taken(NAME, mark, str(checkpoint.images))
        return checkpoint

    def restore(self, checkpoint: Checkpoint) -> None:
        self.criu.restore(checkpoint)
        checkpoint.discard()

    def restored(self, mark: str) -> Verdict:
        return self.sidecar.restored(NAME, mark)

    def restart_sidecar(self) -> None:
        self.sidecar = restart_sidecar(self.sidecar)

    def wait_new_verdict(self, known: int) -> Verdict:
        """The newest final verdict, once there are more than `known`."""

        def newest() -> Verdict | None:
            found = self.sidecar.verdicts(NAME)
            return found[0] if len(found) > known and found[0].final else None

        return wait_for(newest, "a new final verdict", VERDICT_TIMEOUT_S, 0.5)

    def hang_up_inside(self) -> None:
        """Ends what clients inside the tree a failed test left behind."""
        for plan in self.folder.glob("*.plan"):
            plan.with_suffix(".leave").touch()

    def healthy(self) -> bool:
        try:
            attached = self.sidecar.wait_attached(NAME)
        except DemoError:
            return False
        return bool(attached) and self.engine.healthy()


@dataclass(frozen=True, slots=True)
class InnerStream:
    """What a client inside the tree has written down: once more after a rollback."""

    plan: SessionPlan
    log: Path

    def tokens(self) -> list[tuple[int, int]]:
        """(number in the session, token) in the order in which they came."""
        lines = self.log.read_text().splitlines(keepends=True) if self.log.exists() else []
        pairs = [line.split() for line in lines if line.endswith("\n")]
        return [(int(number), int(token)) for number, token in pairs]

    def wait_for_tokens(self, count: int) -> None:
        wait_for(
            lambda: len(self.tokens()) >= count, f"{count} tokens of {self.plan.name}", 120, 0.1
        )

    def leave(self) -> str:
        """Hangs up; the error that the client saw, or nothing."""
        self.log.with_suffix(".leave").touch()
        done = self.log.with_suffix(".done")
        wait_for(done.exists, f"end of {self.plan.name}", 60, 0.1)
        return done.read_text()


def plans(test: str) -> tuple[SessionPlan, ...]:
    """Three sessions that no other test shares a prefix with; two of them share one.

    So long that none ends before its dump, however slow the machine.
    """
    tokens = 3000
    shared = (
        f"This is the log of {test}, kept by hand. Every evening somebody writes down what the "
        "weather was like, which ships passed, how the lamp burned and what was eaten for "
        "dinner; nothing is left out and nothing is made up. "
    )
    return (
        SessionPlan("greedy", f"The story of {test} begins with", tokens),
        SessionPlan("shared-greedy", shared + "Monday:", tokens),
        SessionPlan("shared-seeded", shared + "Tuesday:", tokens, seed=7),
    )
