"""`tokenwitness sessions`."""

from rich.console import Group
from rich.text import Text

from sidecar.cli import options
from sidecar.cli.client import SidecarClient
from sidecar.cli.documents import Document
from sidecar.cli.output import answer, answering, form_of, table


def sessions(
    *,
    worker: options.Worker,
    limit: options.Limit = 100,
    sidecar: options.Sidecar = options.SIDECAR,
    as_json: options.Json = False,
) -> None:
    """Sessions in flight, as recorded: what a restore is judged against."""
    form = form_of(as_json)
    with answering(form), SidecarClient(sidecar) as client:
        answer(form, client.list_sessions(worker, limit=limit), _text)


def _text(reply: Document) -> Group:
    made = table(
        ("session", "emitted", "computed", "in flight", "prompt", "step", "sampling"),
        [
            (
                session["session_id"],
                session["emitted"],
                session["computed"],
                session["in_flight"],
                session["prompt_length"],
                session["last_step"],
                "shadow" if session["shadow"] else _sampling(session["sampling"]),
            )
            for session in reply["sessions"]
        ],
    )
    left = reply["left_off"]
    return Group(made, *([Text(f"and {left} more; raise --limit")] if left else []))


def _sampling(sampling: Document | None) -> str:
    if sampling is None:
        return "not known"
    if sampling["temperature"] == 0:
        return "greedy"
    seed = "unseeded" if sampling["seed"] is None else f"seed {sampling['seed']}"
    return f"temperature {sampling['temperature']:g}, {seed}"
