"""What `restored` and `verify` have in common: a verification that may be waited for."""

import typer
from rich.text import Text

from sidecar.cli.client import SidecarClient
from sidecar.cli.documents import Document
from sidecar.cli.errors import UsageFault
from sidecar.cli.output import Form, answer
from sidecar.cli.verdict_text import exit_of_final, exit_of_state, verdict_text


def check_waiting(*, wait: bool, state_only: bool) -> None:
    if state_only and not wait:
        raise UsageFault("--state-only belongs to --wait")


def started(form: Form, reply: Document) -> None:
    """Answers without waiting."""
    answer(form, reply, lambda r: Text(f"verification {r['verification_id']} started"))


def wait_final(
    client: SidecarClient, form: Form, worker: str, verification_id: str, *, timeout_s: float
) -> None:
    """Prints the verdict and exits by it."""
    reply = client.wait_final_verdict(worker, verification_id, timeout_s=timeout_s)
    _leave(form, reply, exit_of_final(reply["verdict"] or _NO_VERDICT))


def wait_state(
    client: SidecarClient, form: Form, worker: str, verification_id: str, *, timeout_s: float
) -> None:
    """Prints the verdict as far as it goes and exits by what it says of memory."""
    reply = client.wait_state_verdict(worker, verification_id, timeout_s=timeout_s)
    _leave(form, reply, exit_of_state(reply["verdict"] or _NO_VERDICT))


_NO_VERDICT: Document = {"verdict": "UNSPECIFIED", "state_verdict": "UNSPECIFIED", "final": False}


def _leave(form: Form, reply: Document, status: int) -> None:
    answer(
        form,
        {**reply, "exit_status": status},
        lambda r: verdict_text(r["verdict"]) if r["verdict"] else Text("no verdict yet"),
    )
    raise typer.Exit(status)
