"""Options that several commands share. A flag goes before its environment variable."""

from typing import Annotated, TypeAlias

import typer

from sidecar.config_types import split_address


def address(text: str) -> str:
    """Refuses what is not host:port, as a usage error."""
    try:
        split_address(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return text


Sidecar: TypeAlias = Annotated[
    str,
    typer.Option(
        "--sidecar",
        envvar="TOKENWITNESS_SIDECAR",
        callback=address,
        help="host:port of the sidecar's gRPC services.",
    ),
]
Json: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON document for programs.")
]
Worker: TypeAlias = Annotated[
    str, typer.Option("--worker", "-w", envvar="TOKENWITNESS_WORKER", help="Name of the worker.")
]
Limit: TypeAlias = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most.")]
Wait: TypeAlias = Annotated[
    bool, typer.Option("--wait", help="Wait for the verdict and exit by it.")
]
StateOnly: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--state-only",
        help="With --wait: exit by the verdict on memory, before the continuation was replayed.",
    ),
]
Timeout: TypeAlias = Annotated[
    float, typer.Option("--timeout", min=0.1, max=86_400, help="Longest wait, in seconds.")
]

SIDECAR = "127.0.0.1:9747"
