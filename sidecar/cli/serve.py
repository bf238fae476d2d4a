"""`tokenwitness serve`: the sidecar itself. Every setting of sidecar/config.py is a flag."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from sidecar.cli.errors import Failed, UsageFault
from sidecar.cli.output import Form, answering, form_of, print_json
from sidecar.config import CONFIG_FILE_VARIABLE, ENV_PREFIX, Settings, SettingsError, load_settings

_Config = Annotated[
    Path | None,
    typer.Option("--config", envvar=CONFIG_FILE_VARIABLE, help="TOML file of settings."),
]
_Check = Annotated[
    bool, typer.Option("--check", help="Only read the settings, print them and end.")
]
_JSON = Annotated[bool, typer.Option("--json", help="Log lines and the output of --check as JSON.")]


def serve_command() -> Callable[..., None]:
    """The command, with one option per setting in its signature, as typer reads it.

    The options take text: the settings themselves read and check it, in one place for flags,
    environment and file.
    """

    def serve(**given: Any) -> None:
        _serve(**given)

    parameters = [
        _parameter("config", _Config, None),
        _parameter("check", _Check, default=False),
        _parameter("as_json", _JSON, default=False),
        *(_parameter(name, _option(name), None) for name in Settings.model_fields),
    ]
    serve.__doc__ = (
        "Runs the sidecar until it is told to end (SIGTERM, SIGINT).\n\n"
        "A flag ranks over the environment (TOKENWITNESS_ and its name in capitals), that over"
        " --config, that over the default."
    )
    serve.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    serve.__annotations__ = {made.name: made.annotation for made in parameters}
    return serve


def _parameter(name: str, annotation: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _option(name: str) -> Any:
    field = Settings.model_fields[name]
    flag = "--" + name.replace("_", "-")
    # No envvar here: the settings read the environment themselves, with its own rank.
    text = f"{field.description} [{ENV_PREFIX}{name.upper()}]"
    if field.annotation is bool:
        return Annotated[bool | None, typer.Option(f"{flag}/--no-{flag[2:]}", help=text)]
    return Annotated[str | None, typer.Option(flag, metavar="VALUE", help=text)]


def _serve(*, config: Path | None, check: bool, as_json: bool, **flags: object) -> None:
    form = form_of(as_json)
    with answering(form):
        if as_json and flags.get("log_format") is None:
            flags["log_format"] = "json"
        try:
            settings = load_settings(flags, config_file=config)
        except SettingsError as error:
            raise UsageFault(str(error)) from error
        if check:
            _print(settings, form)
            return
        _run(settings)


def _run(settings: Settings) -> None:
    # Late: only this command needs the server, and the others should start quickly.
    from sidecar.ledger.errors import LedgerError  # noqa: PLC0415
    from sidecar.server import run  # noqa: PLC0415

    try:
        run(settings)
    except (LedgerError, OSError) as error:
        raise Failed(f"sidecar cannot run: {error}") from error


def _print(settings: Settings, form: Form) -> None:
    document = settings.model_dump(mode="json")
    if form is Form.JSON:
        print_json(document)
    else:
        for name, value in document.items():
            typer.echo(f"{name} = {value}")
