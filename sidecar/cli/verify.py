"""`tokenwitness verify`: memory against record, now."""

from typing import Annotated

import typer

from sidecar.cli import options
from sidecar.cli.client import SidecarClient
from sidecar.cli.output import answering, form_of
from sidecar.cli.verifications import check_waiting, started, wait_final, wait_state

Continuation = Annotated[
    bool, typer.Option("--continuation", help="Replay the next tokens of sessions too.")
]


def verify(
    *,
    worker: options.Worker,
    continuation: Continuation = False,
    wait: options.Wait = False,
    state_only: options.StateOnly = False,
    timeout: options.Timeout = 120.0,
    sidecar: options.Sidecar = options.SIDECAR,
    as_json: options.Json = False,
) -> None:
    """Verifies a worker that was not restored, or that nobody said was.

    With --wait the exit status is the verdict's; only a final pass is 0.
    """
    form = form_of(as_json)
    with answering(form):
        check_waiting(wait=wait, state_only=state_only)
        with SidecarClient(sidecar) as client:
            ask = client.verify_with_continuation if continuation else client.verify_memory
            reply = ask(worker, deadline_s=timeout)
            if not wait:
                started(form, reply)
                return
            waiting = wait_state if state_only else wait_final
            waiting(client, form, worker, reply["verification_id"], timeout_s=timeout)
