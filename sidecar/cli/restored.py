"""`tokenwitness restored`: a worker came back from a checkpoint."""

from typing import Annotated

import typer

from sidecar.cli import options
from sidecar.cli.client import SidecarClient
from sidecar.cli.output import answering, form_of
from sidecar.cli.verifications import check_waiting, started, wait_final, wait_state

Mark = Annotated[
    str, typer.Option("--mark", help="Mark of the image. Default: judge by the whole record.")
]


def restored(
    *,
    worker: options.Worker,
    mark: Mark = "",
    wait: options.Wait = False,
    state_only: options.StateOnly = False,
    timeout: options.Timeout = 120.0,
    sidecar: options.Sidecar = options.SIDECAR,
    as_json: options.Json = False,
) -> None:
    """Says that a worker was restored, which starts a verification.

    With --wait the exit status is the verdict's; only a final pass is 0.
    """
    form = form_of(as_json)
    with answering(form):
        check_waiting(wait=wait, state_only=state_only)
        with SidecarClient(sidecar) as client:
            reply = client.restored(worker, mark, deadline_s=timeout)
            if not wait:
                started(form, reply)
                return
            waiting = wait_state if state_only else wait_final
            waiting(client, form, worker, reply["verification_id"], timeout_s=timeout)
