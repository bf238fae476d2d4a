"""`tokenwitness engine-args`: the flags that attach the adapter to an engine."""

import json
import re
import shlex
from typing import Annotated

import typer

from sidecar.cli import options
from sidecar.cli.documents import Document
from sidecar.cli.errors import UsageFault
from sidecar.cli.output import Form, answering, form_of, print_json

# The names of engine_adapters.vllm. This side must not import that one; a test compares them.
VLLM_CONNECTOR = "TokenwitnessConnector"
VLLM_MODULE = "engine_adapters.vllm.connector"

app = typer.Typer(
    no_args_is_help=True, help="The flags that attach the adapter to an engine, ready to paste."
)

Name = Annotated[
    str,
    typer.Option(
        "--worker",
        "-w",
        envvar="TOKENWITNESS_WORKER",
        help="Name of the worker. Default: the adapter takes the host's.",
    ),
]
Multi = Annotated[
    bool, typer.Option("--multi", help="Stand beside other connectors, in a MultiConnector.")
]
Beside = Annotated[
    list[str] | None,
    typer.Option(
        "--beside",
        help="JSON of a connector that is in use already (its --kv-transfer-config);"
        " may be given several times. Implies --multi.",
    ),
]
EngineUrl = Annotated[
    str, typer.Option("--engine-url", help="Where the engine's HTTP API answers, for replays.")
]


@app.callback()
def engine_args() -> None:
    """Keeps `vllm` a subcommand while it is the only one."""


@app.command()
def vllm(
    *,
    worker: Name = "",
    multi: Multi = False,
    beside: Beside = None,
    engine_url: EngineUrl = "",
    sidecar: options.Sidecar = options.SIDECAR,
    as_json: options.Json = False,
) -> None:
    """Prints the flags for `vllm serve` (or `python -m vllm.entrypoints.openai.api_server`)."""
    form = form_of(as_json)
    with answering(form):
        others = [_connector(text) for text in beside or []]
        own = own_connector(worker=worker, address=sidecar, engine_url=engine_url)
        config = multi_connector([own, *others]) if multi or others else own
        if form is Form.JSON:
            flags = ["--kv-transfer-config", json.dumps(config, separators=(",", ":"))]
            print_json({"engine": "vllm", "flags": flags, "kv_transfer_config": config})
        else:
            typer.echo("--kv-transfer-config " + shlex.quote(json.dumps(config)))


def own_connector(*, worker: str, address: str, engine_url: str) -> Document:
    """The adapter as a connector of its own.

    `kv_producer` is the role that changes the engine least: blocks are freed as ever.
    """
    if worker and not re.fullmatch(r"[A-Za-z0-9._/-]{1,128}", worker):
        raise UsageFault(
            f"worker name {worker!r}: use 1 to 128 letters, digits, '.', '_', '-' or '/'"
        )
    extra = {"address": address, "worker": worker, "engine_url": engine_url}
    return {
        "kv_connector": VLLM_CONNECTOR,
        "kv_connector_module_path": VLLM_MODULE,
        "kv_role": "kv_producer",
        "kv_connector_extra_config": {name: value for name, value in extra.items() if value},
    }


def multi_connector(children: list[Document]) -> Document:
    """All of `children` side by side. A loading child needs the role that does both."""
    roles = {child.get("kv_role") for child in children}
    return {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_producer" if roles == {"kv_producer"} else "kv_both",
        "kv_connector_extra_config": {"connectors": children},
    }


def _connector(text: str) -> Document:
    try:
        connector = json.loads(text)
    except ValueError as error:
        raise UsageFault(f"--beside {text!r} is not JSON: {error}") from None
    if not isinstance(connector, dict) or not isinstance(connector.get("kv_connector"), str):
        raise UsageFault(f"--beside {text!r} needs a kv_connector; give a --kv-transfer-config")
    return connector
