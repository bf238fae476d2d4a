"""Verdicts as people read them, and the exit status they lead to."""

from rich.console import Group
from rich.text import Text

from sidecar.cli.documents import Document
from sidecar.cli.exit_codes import Exit, exit_of_verdict
from sidecar.cli.output import table
from sidecar.core.verdicts import Verdict

# Sessions shown before the rest is only counted.
_SHOWN = 20


def verdict_of(name: str) -> Verdict:
    """The verdict of this name. One that this version does not know is never a pass."""
    return Verdict.__members__.get(name, Verdict.INCOMPARABLE)


def exit_of_final(verdict: Document) -> int:
    """Exit status of a wait for the final verdict. A pass that is not final is a timeout."""
    given = verdict_of(verdict["verdict"])
    if verdict["final"]:
        return exit_of_verdict(given)
    state = verdict_of(verdict["state_verdict"])
    if state.passes or state is Verdict.UNSPECIFIED:
        return int(Exit.TIMEOUT)
    return exit_of_verdict(state)


def exit_of_state(verdict: Document) -> int:
    """Exit status of a wait for the verdict on memory."""
    state = verdict_of(verdict["state_verdict"])
    return int(Exit.TIMEOUT) if state is Verdict.UNSPECIFIED else exit_of_verdict(state)


def styled(name: str) -> Text:
    verdict = verdict_of(name)
    if verdict.passes:
        return Text(name, style="green")
    if verdict in (Verdict.INCOMPARABLE, Verdict.TIMEOUT, Verdict.UNSPECIFIED):
        return Text(name, style="yellow")
    return Text(name, style="bold red")


def verdict_text(verdict: Document) -> Group:
    """One worker's verdict with its evidence."""
    final = "final" if verdict["final"] else "not final"
    compared = verdict["compared"] or {}
    head = Text.assemble(
        (verdict["worker"] or "?", "bold"),
        ": ",
        styled(verdict["verdict"]),
        f" ({final}; memory {verdict['state_verdict']}; trigger {verdict['trigger'] or '-'}"
        f"; generation {verdict['generation']}; {verdict['verification_id']})",
    )
    counts = Text(
        "compared: "
        + (", ".join(f"{name} {count}" for name, count in compared.items()) or "nothing")
    )
    parts: list[object] = [head, counts]
    parts += [finding_text(finding) for finding in verdict["findings"]]
    sessions = sorted(verdict["sessions"], key=lambda s: -verdict_of(s["verdict"]))
    rows = [
        (
            session["session_id"],
            styled(session["verdict"]),
            f"{session['emitted_found']} of {session['emitted_expected']}",
            ",".join(session["continuation_modes"]) or "-",
            "; ".join(str(finding_text(finding)) for finding in session["findings"]),
        )
        for session in sessions[:_SHOWN]
    ]
    if rows:
        parts.append(table(("session", "verdict", "emitted", "continuation", "evidence"), rows))
    if len(sessions) > _SHOWN:
        parts.append(Text(f"and {len(sessions) - _SHOWN} more sessions; --json has all of them"))
    return Group(*parts)  # type: ignore[arg-type]  # texts and tables are renderable


def finding_text(finding: Document) -> Text:
    """`KV_MISMATCH rank=1 layers=4-7 positions=96..97: reason`; positions are half-open."""
    words = [finding["verdict"]]
    if finding["rank"] is not None:
        words.append(f"rank={finding['rank']}")
    if finding["layers"]:
        words.append(f"layers={_runs(finding['layers'])}")
    starts, ends = finding["position_starts"], finding["position_ends"]
    if starts:
        ranges = (f"{start}..{end}" for start, end in zip(starts, ends, strict=True))
        words.append("positions=" + ",".join(ranges))
    if finding["first_differing_position"] is not None:
        words.append(f"first_difference={finding['first_differing_position']}")
    if finding["logprob_margin"] is not None:
        words.append(f"margin={finding['logprob_margin']:.4g}")
    words += [f"{name}={finding[name]}" for name in ("expected", "found") if finding[name]]
    text = " ".join(words)
    return Text(f"{text}: {finding['reason']}" if finding["reason"] else text)


def _runs(numbers: list[int]) -> str:
    """`0-3,7` for 0, 1, 2, 3, 7."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
