"""How the sidecar writes its log: one event a line, JSON for machines, columns for people."""

import logging
import sys
from typing import TextIO

import structlog

from sidecar.config_types import LogFormat, LogLevel


def configure_logs(log_format: LogFormat, level: LogLevel, stream: TextIO | None = None) -> None:
    """Sets the process's logging up. `stream` defaults to standard error."""
    out = sys.stderr if stream is None else stream
    as_json = log_format is LogFormat.JSON or (log_format is LogFormat.AUTO and not out.isatty())
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(colors=out.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info if as_json else _as_it_is,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.value.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
    # Libraries log through the standard module; only what an operator must act on is shown.
    logging.basicConfig(
        stream=out, level=logging.WARNING, format="%(name)s: %(message)s", force=True
    )


def _as_it_is(
    logger: object, name: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """The console renderer formats exceptions itself."""
    del logger, name
    return event
