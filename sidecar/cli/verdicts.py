"""`tokenwitness verdicts`."""

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.table import Table

from sidecar.cli import options
from sidecar.cli.client import SidecarClient
from sidecar.cli.documents import Document
from sidecar.cli.output import answer, answering, form_of, table
from sidecar.cli.verdict_text import styled

AnyWorker = Annotated[
    str, typer.Option("--worker", "-w", envvar="TOKENWITNESS_WORKER", help="Default: all workers.")
]


def verdicts(
    *,
    worker: AnyWorker = "",
    limit: options.Limit = 50,
    sidecar: options.Sidecar = options.SIDECAR,
    as_json: options.Json = False,
) -> None:
    """Past verdicts, newest first. Exits 0 whatever they say."""
    form = form_of(as_json)
    with answering(form), SidecarClient(sidecar) as client:
        answer(form, client.list_verdicts(worker, limit=limit), _table)


def _table(reply: Document) -> Table:
    return table(
        ("noticed", "worker", "gen", "trigger", "mark", "memory", "verdict", "final", "sessions"),
        [
            (
                _time(verdict["noticed_unix_ns"]),
                verdict["worker"],
                verdict["generation"],
                verdict["trigger"],
                verdict["mark"] or "-",
                styled(verdict["state_verdict"]),
                styled(verdict["verdict"]),
                "yes" if verdict["final"] else "no",
                len(verdict["sessions"]),
            )
            for verdict in reply["verdicts"]
        ],
    )


def _time(unix_ns: int) -> str:
    if not unix_ns:
        return "-"
    return datetime.fromtimestamp(unix_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S")
