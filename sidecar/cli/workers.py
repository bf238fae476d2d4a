"""`tokenwitness workers`."""

from rich.table import Table

from sidecar.cli import options
from sidecar.cli.client import SidecarClient
from sidecar.cli.documents import Document
from sidecar.cli.output import answer, answering, form_of, table
from sidecar.cli.verdict_text import styled


def workers(*, sidecar: options.Sidecar = options.SIDECAR, as_json: options.Json = False) -> None:
    """Workers that are attached, and what was last judged of them."""
    form = form_of(as_json)
    with answering(form), SidecarClient(sidecar) as client:
        answer(form, client.list_workers(), lambda reply: workers_table(reply["workers"]))


def workers_table(workers: list[Document]) -> Table:
    return table(
        ("worker", "gen", "ranks", "launched", "committed", "sessions", "holes", "gate", "verdict"),
        [
            (
                worker["worker"],
                worker["generation"],
                f"{attached_ranks(worker)} of {worker['ranks_expected']}",
                worker["launched_step"],
                worker["committed_step"],
                worker["sessions"],
                worker["hole_records"],
                _gate(worker),
                styled(worker["last_verdict"]),
            )
            for worker in workers
        ],
    )


def attached_ranks(worker: Document) -> int:
    return sum(source["kind"] == "RANK" for source in worker["attached"])


def _gate(worker: Document) -> str:
    gate = "open" if worker["gate_open"] else f"closed ({worker['gate_reason'] or 'no reason'})"
    return gate + (" held" if worker["held"] else "")
