"""`tokenwitness mark`: before and after a checkpoint is taken."""

from typing import Annotated

import typer
from rich.text import Text

from sidecar.cli import options
from sidecar.cli.client import SidecarClient
from sidecar.cli.documents import Document
from sidecar.cli.errors import UsageFault
from sidecar.cli.output import answer, answering, form_of

Name = Annotated[str, typer.Option("--name", help="Name of the mark. Default: one is chosen.")]
Complete = Annotated[
    bool, typer.Option("--complete", help="The checkpoint of mark --name was taken.")
]
Failed = Annotated[bool, typer.Option("--failed", help="The checkpoint of mark --name failed.")]
Image = Annotated[
    str, typer.Option("--image", help="With --complete: where the image is, for the record.")
]


def mark(
    *,
    worker: options.Worker,
    name: Name = "",
    complete: Complete = False,
    failed: Failed = False,
    image: Image = "",
    timeout: options.Timeout = 30.0,
    sidecar: options.Sidecar = options.SIDECAR,
    as_json: options.Json = False,
) -> None:
    """Makes a mark before a checkpoint, or says afterwards how the checkpoint went.

    Returns once the mark is durable. The engine goes on meanwhile.
    """
    form = form_of(as_json)
    with answering(form):
        _check(name, complete=complete, failed=failed, image=image)
        with SidecarClient(sidecar) as client:
            if complete:
                reply = client.complete_mark(worker, name, image=image)
            elif failed:
                reply = client.fail_mark(worker, name)
            else:
                reply = client.prepare_mark(worker, name, deadline_s=timeout)
        answer(form, reply, _text)


def _check(name: str, *, complete: bool, failed: bool, image: str) -> None:
    if complete and failed:
        raise UsageFault("--complete and --failed exclude each other")
    if (complete or failed) and not name:
        raise UsageFault("--complete and --failed need the mark's --name")
    if image and not complete:
        raise UsageFault("--image belongs to --complete")


def _text(reply: Document) -> Text:
    made = reply["mark"]
    last = f", image holds up to step {made['last_step']}" if made["last_step"] else ""
    return Text(
        f"mark {made['name']} of {made['worker']}: {made['outcome']} at step {made['step']},"
        f" {made['sessions']} sessions{last}"
    )
