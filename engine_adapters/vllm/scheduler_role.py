"""The scheduler's side: what each step is about to do, and what came of it."""

from collections import deque
from typing import Any

from engine_adapters.report.attestations import DueAttestation, Origin, SchedulerBody
from engine_adapters.report.records import CommitRecord, LaunchRecord, SessionStart
from engine_adapters.report.reporter import SourceReporter
from engine_adapters.vllm.errors import OutOfStepError
from engine_adapters.vllm.launches import Launch, LaunchReader, digest_range, read_outcome
from engine_adapters.vllm.live_sessions import LiveReader, end_reason
from engine_adapters.vllm.metadata import AttestNote, StepDone, StepMetadata
from engine_adapters.vllm.sampling import salt_digest, sampling_of
from engine_adapters.vllm.session_book import SessionBook
from engine_adapters.vllm.stall_watch import StallWatch


class SchedulerRole:
    """Hooks of vLLM's scheduler, one engine thread. `reporter` is given before the first step.

    Steps are counted here, from 1; the ranks learn the number from the step's metadata.
    `stalls`: where an outcome that comes late means that the device stood still; None where it
    can mean work (a long prefill on a CPU).
    """

    def __init__(self, live: LiveReader, stalls: StallWatch | None = None) -> None:
        self.reporter: SourceReporter | None = None
        self._live = live
        self._stalls = stalls
        self._book = SessionBook()
        self._reader = LaunchReader(self._book)
        self._pending: deque[Launch] = deque()
        self._step = 0
        self._committed = 0
        self._note: AttestNote | None = None

    def new_request(self, request: Any) -> None:
        """A request was added. One that takes its prompt piece by piece is not followed: vLLM
        takes tokens back from it.
        """
        if getattr(request, "resumable", False):
            return
        # The list itself: vLLM's read-only view of it costs a call per token.
        tokens = getattr(request, "_all_token_ids", request.all_token_ids)
        self._book.open(request, tokens, sampling_of(request))

    def finished(self, request: Any) -> None:
        """A request ended. In an outcome's own loop this comes before the outcome: the end is
        told with the commit, after its last tokens.
        """
        self._book.end(request.request_id, end_reason(request), self._step)

    def launch(self, output: Any) -> StepMetadata:
        """The step that `output` (vLLM's SchedulerOutput) describes is about to run."""
        book = self._book
        self._step += 1
        ended = book.take_ended()
        started = [_start_of(session) for session in book.take_unannounced()]
        preempted = self._preempt(output.preempted_req_ids)
        tables = self._reader.tables(output)
        launch = self._reader.read(output, self._step)
        starts, counts = digest_range(launch, tuple(self._pending))
        self._pending.append(launch)
        self._report_launch(launch, ended, started, preempted, tables)
        self._attest_while_due(launch)
        note, self._note = self._note, None
        self._launch_watched(note)
        return StepMetadata(
            step=self._step,
            rows=launch.batch.rows,
            starts=starts,
            counts=counts,
            started=[(start.row, start.session_id) for start in started],
            ended=book.take_ended_for_ranks(),
            preempted=preempted,
            tables=tables,
            attest=note,
        )

    def outcome(self, done: Any) -> None:
        """Tokens of the oldest step without outcome were appended; `done` came from the ranks.

        Raises:
            OutOfStepError: outcomes are not in the order of the launches, or ranks differ.

        """
        if isinstance(done, StepDone):
            if done.skewed:
                raise OutOfStepError("ranks' outcomes of one step", done, "one step")
            # Steps that computed nothing may come back without an outcome.
            while self._pending and self._pending[0].step < done.step:
                self._commit_empty()
            if not self._pending or self._pending[0].step != done.step:
                raise OutOfStepError(
                    "outcome of a step", done.step, [p.step for p in self._pending]
                )
        if self._pending:
            launch = self._pending.popleft()
            self._sign_if_late()
            self._commit(launch)
            if self._attest_while_due(None) and self._stalls is not None:
                self._stalls.held()

    def idle_attestation(self, due: DueAttestation) -> SchedulerBody | None:
        """Reads live memory from another thread, while the engine runs no step or is held.
        None where it moved meanwhile.
        """
        step, committed = self._step, self._committed
        body = self._live.read_stable(self._book, committed)
        if body is None or (step, committed) != (self._step, self._committed):
            return None
        self._note = AttestNote(self._note_id(due), due.weights, step)
        return body

    def _preempt(self, names: Any) -> list[int]:
        rows = (self._book.preempt(name) for name in names or ())
        return [row for row in rows if row is not None]

    def _report_launch(
        self, launch: Launch, ended: Any, started: Any, preempted: Any, tables: Any
    ) -> None:
        assert self.reporter is not None  # noqa: S101 - given before the first step
        self.reporter.put(
            LaunchRecord(
                step=launch.step,
                rows=launch.batch.rows,
                starts=launch.starts,
                counts=launch.counts,
                drafts=launch.drafts,
                started=started,
                ended=ended,
                preempted_rows=preempted,
                blocks=tables,
            )
        )
        self.reporter.note_step(launch.step)

    def _commit(self, launch: Launch) -> None:
        assert self.reporter is not None  # noqa: S101 - given before the first step
        outcome = read_outcome(self._book, launch)
        self._committed = launch.step
        self.reporter.put(
            CommitRecord(
                step=launch.step,
                tokens=outcome.tokens,
                token_counts=outcome.token_counts,
                rejected=outcome.rejected,
                ended=self._book.take_ended(),
            )
        )
        self._book.committed(launch.step)

    def _commit_empty(self) -> None:
        launch = self._pending.popleft()
        if self._stalls is not None:
            self._stalls.outcome()
        if len(launch.batch.rows):
            raise OutOfStepError("step without an outcome", launch.step, "an outcome of each step")
        self._commit(launch)

    def _launch_watched(self, note: AttestNote | None) -> None:
        if self._stalls is None:
            return
        if note is None:
            self._stalls.launch()
        else:
            self._stalls.launch_with_attestation()

    def _sign_if_late(self) -> None:
        """Before the outcome is told: its tokens are then held with it."""
        if self._stalls is None:
            return
        assert self.reporter is not None  # noqa: S101 - given before the first step
        took_ns = self._stalls.outcome()
        if took_ns > self.reporter.suspect_after_ns:
            self.reporter.stood_still(took_ns)

    def _attest_while_due(self, not_advanced: Launch | None) -> bool:
        """At a boundary: before a launched step runs, whose tokens vLLM does not count yet
        (`not_advanced`), or after an outcome.

        Held only after an outcome: the step that ran when the worker was taken out of the world
        ends after its restore, and its tokens must not leave the engine before the verdict.
        Ranks attest from their reporters' threads meanwhile, as no step runs. Before a step the
        ranks hold, which have to learn of the launch first to read what it tells of.

        Whether anything was due.
        """
        assert self.reporter is not None  # noqa: S101 - given before the first step
        found = False
        while (due := self.reporter.due()) is not None:
            found = True
            self._attest(due, not_advanced)
            if not_advanced is None:
                self.reporter.hold(due)
        return found

    def _attest(self, due: DueAttestation, not_advanced: Launch | None) -> None:
        assert self.reporter is not None  # noqa: S101 - given before the first step
        if due.attested:
            return
        body = self._live.read(self._book, self._committed, not_advanced)
        self.reporter.attest(due, body, step=self._step, idle=False)
        self._note = AttestNote(self._note_id(due), due.weights, self._step)

    @staticmethod
    def _note_id(due: DueAttestation) -> int:
        return due.attest_id if due.origin is Origin.REQUEST else 0


def _start_of(session: Any) -> SessionStart:
    prompt = session.tokens[: session.prompt_length]
    return SessionStart(
        row=session.row,
        session_id=session.session_id,
        prompt_tokens=prompt,
        sampling=session.sampling,
        cache_salt_digest=salt_digest(session.request),
        output_tokens=session.tokens[session.prompt_length :],
    )
