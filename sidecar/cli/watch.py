"""`tokenwitness watch`: what happens from now on."""

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from sidecar.cli import options
from sidecar.cli.client import SidecarClient
from sidecar.cli.documents import Document
from sidecar.cli.output import Form, answering, console, form_of, print_json_line
from sidecar.cli.verdict_text import styled
from sidecar.cli.verdicts import AnyWorker
from sidecar.cli.workers import workers_table

# Lines kept on the live screen.
_LINES = 15

Count = Annotated[
    int | None, typer.Option("--count", min=1, help="End after this many events. Default: never.")
]
For = Annotated[float | None, typer.Option("--for", min=0.1, help="End after this many seconds.")]


def watch(
    *,
    worker: AnyWorker = "",
    count: Count = None,
    for_s: For = None,
    sidecar: options.Sidecar = options.SIDECAR,
    as_json: options.Json = False,
) -> None:
    """Shows workers and events live; with --json one line of JSON per event.

    Ends with Ctrl-C, --count or --for (status 0), or when the sidecar goes away.
    """
    form = form_of(as_json)
    with answering(form), SidecarClient(sidecar) as client:
        events = islice(client.watch(worker, for_s=for_s), count)
        try:
            if form is Form.JSON:
                for event in events:
                    print_json_line(event)
            else:
                _show(events)
        except KeyboardInterrupt:
            return


def _show(events: Iterator[Document]) -> None:
    workers: dict[str, Document] = {}
    lines: deque[Text] = deque(maxlen=_LINES)
    with Live(Text("waiting for events"), console=console(), auto_refresh=False) as live:
        for event in events:
            if (status := event.get("status")) is not None:
                workers[status["worker"]] = status
            else:
                lines.append(event_line(event))
            shown = [workers[name] for name in sorted(workers)]
            live.update(Group(workers_table(shown), *lines), refresh=True)


def event_line(event: Document) -> Text:
    time = datetime.fromtimestamp(event["unix_ns"] / 1e9, UTC).strftime("%H:%M:%S")
    if (verdict := event.get("verdict")) is not None:
        final = "" if verdict["final"] else " (not final)"
        return Text.assemble(f"{time} {verdict['worker']} ", styled(verdict["verdict"]), final)
    if (mark := event.get("mark")) is not None:
        return Text(f"{time} {mark['worker']} mark {mark['name']} {mark['outcome']}")
    if "missed" in event:
        return Text(f"{time} {event['missed']} events missed: this terminal was too slow")
    return Text(f"{time} an event that this version does not know")
