"""What a verdict does to the gate of its worker. Pure."""

from sidecar.core.verdicts import Verdict, WorkerVerdict
from sidecar.gate import GatePosition
from sidecar.identity import RestoreEvidence
from sidecar.ports import Continuation
from sidecar.verify.run import Run


def gate_position(run: Run, verdict: WorkerVerdict) -> GatePosition | None:
    """What a verdict does to the worker's gate; None: nothing.

    A fault of memory closes it at once, everything else waits for the final verdict. A check
    that an operator asked for closes it only on a fault that was found, not because something
    could not be compared, and opens it only if the continuation was followed.
    """
    if not verdict.final:
        unsure = verdict.state_verdict.passes or run.trigger is RestoreEvidence.OPERATOR
        return None if unsure else GatePosition.CLOSED
    if run.trigger is RestoreEvidence.OPERATOR:
        if verdict.verdict.passes and run.continuation is Continuation.SKIP:
            return None
        if verdict.verdict in (Verdict.INCOMPARABLE, Verdict.TIMEOUT):
            return None
    return GatePosition.OPEN if verdict.verdict.passes else GatePosition.CLOSED


def gate_reason(verdict: WorkerVerdict) -> str:
    if verdict.verdict.passes:
        return ""
    detail = next(
        (
            finding.reason
            for findings in (verdict.findings, *(s.findings for s in verdict.sessions))
            for finding in findings
            if finding.verdict is verdict.verdict
        ),
        "",
    )
    return f"{verdict.verdict.name}: {detail}" if detail else verdict.verdict.name
