"""`tokenwitness gate`: may this worker serve?"""

import typer
from rich.text import Text

from sidecar.cli import options
from sidecar.cli.client import SidecarClient
from sidecar.cli.documents import Document
from sidecar.cli.errors import NotFound
from sidecar.cli.exit_codes import Exit
from sidecar.cli.output import answer, answering, form_of


def gate(
    *,
    worker: options.Worker,
    sidecar: options.Sidecar = options.SIDECAR,
    as_json: options.Json = False,
) -> None:
    """Status 0 while the worker's gate is open, 9 while it is closed. For probes and scripts."""
    form = form_of(as_json)
    with answering(form):
        with SidecarClient(sidecar) as client:
            found = [w for w in client.list_workers()["workers"] if w["worker"] == worker]
        if not found:
            raise NotFound(f"worker {worker!r} is not known to the sidecar at {sidecar}")
        status = {name: found[0][name] for name in ("worker", "gate_open", "gate_reason")}
        answer(form, status, _text)
        if not status["gate_open"]:
            raise typer.Exit(int(Exit.GATE_CLOSED))


def _text(status: Document) -> Text:
    word = "open" if status["gate_open"] else "closed"
    reason = f": {status['gate_reason']}" if status["gate_reason"] else ""
    return Text(f"gate of {status['worker']} is {word}{reason}")
