"""Log lines: one event each, as JSON or for people."""

import io
import json

import pytest
import structlog

from sidecar.config_types import LogFormat, LogLevel
from sidecar.logs import configure_logs


@pytest.fixture(autouse=True)
def restored_logging():
    yield
    structlog.reset_defaults()


def test_json_lines_have_event_level_time_and_fields():
    out = io.StringIO()
    configure_logs(LogFormat.JSON, LogLevel.INFO, out)
    log = structlog.get_logger()
    log.debug("hidden")
    log.warning("gate", worker="w", open=False)
    (line,) = out.getvalue().splitlines()
    entry = json.loads(line)
    assert (entry["event"], entry["level"]) == ("gate", "warning")
    assert (entry["worker"], entry["open"]) == ("w", False)
    assert entry["timestamp"].endswith("Z")


def test_a_stream_that_is_no_terminal_gets_json():
    out = io.StringIO()
    configure_logs(LogFormat.AUTO, LogLevel.INFO, out)
    structlog.get_logger().info("here")
    assert json.loads(out.getvalue())["event"] == "here"


def test_exceptions_are_part_of_their_line():
    for form in (LogFormat.JSON, LogFormat.CONSOLE):
        out = io.StringIO()
        configure_logs(form, LogLevel.INFO, out)
        try:
            int("broken")
        except ValueError:
            structlog.get_logger().exception("failed")
        assert "broken" in out.getvalue()
        if form is LogFormat.JSON:
            assert len(out.getvalue().splitlines()) == 1
