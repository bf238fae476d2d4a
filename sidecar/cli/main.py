"""The program `tokenwitness`."""

import typer

from sidecar.cli import engine_args, ledger
from sidecar.cli.doctor import doctor
from sidecar.cli.gate import gate
from sidecar.cli.mark import mark
from sidecar.cli.restored import restored
from sidecar.cli.serve import serve_command
from sidecar.cli.sessions import sessions
from sidecar.cli.verdicts import verdicts
from sidecar.cli.verify import verify
from sidecar.cli.watch import watch
from sidecar.cli.workers import workers

app = typer.Typer(
    name="tokenwitness",
    no_args_is_help=True,
    add_completion=False,
    # Locals in a traceback would print users' tokens.
    pretty_exceptions_enable=False,
    help="Proves or disproves that a restored serving worker resumed at the exact token.",
    epilog="docs/cli.md has the exit statuses.",
)

app.command()(doctor)
app.command(name="serve")(serve_command())
for _command in (workers, sessions, verdicts, watch, gate, mark, restored, verify):
    app.command()(_command)
app.add_typer(engine_args.app, name="engine-args")
app.add_typer(ledger.app, name="ledger")


def main() -> None:
    app()


if __name__ == "__main__":
    main()
