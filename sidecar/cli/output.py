"""How commands speak: tables for people on standard output, one JSON document for programs."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sidecar.cli.documents import Document
from sidecar.cli.errors import CommandError


class Form(Enum):
    PEOPLE = "people"
    JSON = "json"


def form_of(as_json: bool) -> Form:
    return Form.JSON if as_json else Form.PEOPLE


@contextmanager
def answering(form: Form) -> Iterator[None]:
    """Turns a CommandError into its message and exit status.

    With `--json` the document `{"error": {"kind", "message"}}` takes the answer's place.
    """
    try:
        yield
    except CommandError as error:
        if form is Form.JSON:
            print_json({"error": {"kind": error.kind, "message": error.message}})
        else:
            typer.echo(f"error: {error.message}", err=True)
        raise typer.Exit(int(error.exit)) from error


def answer(form: Form, document: Document, for_people: Callable[[Document], object]) -> None:
    """Prints the one answer of a command."""
    if form is Form.JSON:
        print_json(document)
    else:
        console().print(for_people(document))


def print_json(document: Document) -> None:
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))


def print_json_line(document: Document) -> None:
    """One line of JSON Lines, flushed: a reader may be waiting for it."""
    typer.echo(json.dumps(document, ensure_ascii=False, separators=(",", ":")))
    sys.stdout.flush()


def console() -> Console:
    """On standard output as it is now. Piped output is as wide as it needs."""
    return Console(
        file=sys.stdout, width=None if sys.stdout.isatty() else 200, highlight=False, markup=False
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """A plain table. Names come from users and engines, so nothing in a cell is markup."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    return made
