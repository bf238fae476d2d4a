"""`tokenwitness doctor`: everything that can be wrong before the first checkpoint."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from sidecar.cli import options
from sidecar.cli.check import Check, State
from sidecar.cli.checks_engine import engine_checks
from sidecar.cli.checks_machine import machine_checks
from sidecar.cli.checks_sidecar import sidecar_checks
from sidecar.cli.documents import Document
from sidecar.cli.exit_codes import Exit
from sidecar.cli.output import answer, form_of
from sidecar.cli.probe import Machine, Probe
from sidecar.cli.verdicts import AnyWorker


class Checkpointer(Enum):
    CRIU = "criu"
    OTHER = "other"


Take = Annotated[
    Checkpointer,
    typer.Option("--checkpoint-by", help="What takes the checkpoints; `other` needs no CRIU."),
]
Criu = Annotated[str, typer.Option("--criu", help="CRIU's name or path.")]
EnginePython = Annotated[
    str | None,
    typer.Option(
        "--engine-python",
        envvar="TOKENWITNESS_ENGINE_PYTHON",
        help="Python of the engine's environment.",
    ),
]
HttpAddress = Annotated[
    str,
    typer.Option(
        "--http-address",
        envvar="TOKENWITNESS_HTTP_ADDRESS",
        callback=options.address,
        help="host:port of the sidecar's health and metrics.",
    ),
]
LedgerPath = Annotated[
    Path,
    typer.Option("--ledger", envvar="TOKENWITNESS_LEDGER_PATH", help="The sidecar's ledger."),
]

_STYLES = {State.OK: "green", State.WARN: "yellow", State.FAIL: "bold red"}


def doctor(
    *,
    worker: AnyWorker = "",
    checkpoint_by: Take = Checkpointer.CRIU,
    criu: Criu = "criu",
    engine_python: EnginePython = None,
    ledger: LedgerPath = Path("tokenwitness.ledger"),
    http_address: HttpAddress = "127.0.0.1:9748",
    sidecar: options.Sidecar = options.SIDECAR,
    as_json: options.Json = False,
) -> None:
    """Checks machine, engine and sidecar, and says the remedy. Status 1 if a check failed."""
    checks = examine(
        Machine(),
        checkpointer=checkpoint_by,
        criu=criu,
        engine_python=engine_python,
        address=sidecar,
        http_address=http_address,
        ledger=ledger,
        worker=worker,
    )
    failed = any(check.state is State.FAIL for check in checks)
    document = {"ok": not failed, "checks": [check.document() for check in checks]}
    answer(form_of(as_json), document, _text)
    if failed:
        raise typer.Exit(int(Exit.FAILED))


def examine(
    probe: Probe,
    *,
    checkpointer: Checkpointer,
    criu: str,
    engine_python: str | None,
    address: str,
    http_address: str,
    ledger: Path,
    worker: str,
) -> list[Check]:
    """All checks, in the order in which to remedy them."""
    by_criu = checkpointer is Checkpointer.CRIU
    return [
        *(machine_checks(probe, criu) if by_criu else ()),
        *engine_checks(probe, engine_python),
        *sidecar_checks(
            probe, address=address, http_address=http_address, ledger=ledger, worker=worker
        ),
    ]


def _text(document: Document) -> Group:
    lines = []
    for check in document["checks"]:
        state = State(check["state"])
        lines.append(
            Text.assemble(
                (f"{state.value:<5}", _STYLES[state]), f"{check['name']}: {check['seen']}"
            )
        )
        if check["remedy"]:
            lines.append(Text(f"     -> {check['remedy']}"))
    return Group(*lines)
