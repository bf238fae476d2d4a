"""`tokenwitness ledger`: the record itself."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from sidecar.cli import options
from sidecar.cli.client import SidecarClient
from sidecar.cli.documents import Document
from sidecar.cli.errors import Failed, NotFound
from sidecar.cli.exit_codes import Exit
from sidecar.cli.output import answer, answering, form_of, print_json_line, table
from sidecar.ledger.errors import LedgerError

if TYPE_CHECKING:
    from sidecar.ledger.values import VerifyReport

app = typer.Typer(no_args_is_help=True, help="Checks, counts and exports the record.")

Ledger = Annotated[
    Path, typer.Argument(envvar="TOKENWITNESS_LEDGER_PATH", help="The ledger's file.")
]
FromStep = Annotated[int, typer.Option("--from-step", min=0, help="0: from the oldest.")]
ToStep = Annotated[int, typer.Option("--to-step", min=0, help="0: to the newest.")]


@app.command()
def verify(path: Ledger, *, as_json: options.Json = False) -> None:
    """Walks the checksum chains and says where they break. Status 1 if anything is wrong.

    The sidecar may go on writing meanwhile.
    """
    form = form_of(as_json)
    with answering(form):
        report = _verified(path)
        answer(form, _report_document(path, report), _report_text)
        if not report.sound:
            raise typer.Exit(int(Exit.FAILED))


@app.command()
def stat(path: Ledger, *, as_json: options.Json = False) -> None:
    """Counts what the ledger holds, source by source. Checks nothing."""
    form = form_of(as_json)
    # Late, like all of the ledger's parts: the other commands should start quickly.
    from sidecar.cli.ledger_stat import statistics  # noqa: PLC0415

    with answering(form):
        _must_exist(path)
        try:
            document = statistics(path)
        except LedgerError as error:
            raise Failed(str(error)) from error
        answer(form, document, _stat_text)


@app.command()
def export(
    worker: options.Worker,
    *,
    from_step: FromStep = 0,
    to_step: ToStep = 0,
    sidecar: options.Sidecar = options.SIDECAR,
    as_json: options.Json = False,
) -> None:
    """Prints a worker's record as JSON lines, one per record, as the sidecar has it.

    With --json an error is a line of JSON too.
    """
    with answering(form_of(as_json)), SidecarClient(sidecar) as client:
        for record in client.export(worker, from_step=from_step, to_step=to_step):
            print_json_line(record)


def _must_exist(path: Path) -> None:
    if not path.is_file():
        raise NotFound(f"there is no ledger at {path}; name the file that the sidecar writes")


def _verified(path: Path) -> "VerifyReport":
    _must_exist(path)
    # Late: the decoder brings all of the wire contract with it.
    from sidecar.ledger.verify import verify_file  # noqa: PLC0415
    from sidecar.wire.codec import decode_payload  # noqa: PLC0415

    return verify_file(path, decode_payload)


def _report_document(path: Path, report: "VerifyReport") -> Document:
    problems = [asdict(problem) | {"fault": problem.fault.value} for problem in report.problems]
    return {
        "path": str(path),
        "sound": report.sound,
        "sources": report.sources,
        "records": report.records,
        "snapshots": report.snapshots,
        "bodies": report.bodies,
        "problems": problems,
        "problems_left_off": report.problems_left_off,
    }


def _report_text(document: Document) -> Group:
    checked = ", ".join(
        f"{document[name]} {name}" for name in ("sources", "records", "snapshots", "bodies")
    )
    lines = [Text(f"checked {checked}")]
    for problem in document["problems"]:
        place = " ".join(
            f"{name}={problem[name]}"
            for name in ("source_id", "generation", "seq")
            if problem[name] is not None
        )
        lines.append(Text(f"{problem['fault']} {place}: {problem['what']}", style="red"))
    if document["problems_left_off"]:
        lines.append(Text(f"and {document['problems_left_off']} more problems", style="red"))
    lines.append(
        Text("sound", style="green") if document["sound"] else Text("NOT SOUND", style="bold red")
    )
    return Group(*lines)


def _stat_text(document: Document) -> Group:
    head = (
        f"{document['path']}: format {document['format_version']}, {document['bytes']} bytes,"
        f" {document['marks']} marks, {document['verdicts']} verdicts"
    )
    return Group(Text(head), _sources_table(document["sources"]))


def _sources_table(sources: list[Document]) -> Table:
    return table(
        ("worker", "incarnation", "source", "gens", "records", "steps", "bytes", "holes"),
        [
            (
                source["worker"],
                source["incarnation"],
                source["source"],
                source["generations"],
                source["records"],
                f"{source['first_step']}..{source['last_step']}",
                source["payload_bytes"],
                source["holes"],
            )
            for source in sources
        ],
    )
