import json
import os

import pytest
from cli_server import canned_sidecar
from typer.testing import CliRunner

from sidecar.cli.main import app


@pytest.fixture(scope="module")
def server():
    with canned_sidecar() as canned:
        yield canned


@pytest.fixture
def sidecar(server):
    server.replies.clear()
    server.asked.clear()
    return server


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith("TOKENWITNESS_"):
            monkeypatch.delenv(name)


@pytest.fixture
def run(monkeypatch):
    """Runs the command line; the result's `json` is its output read as one document."""

    def call(*arguments, env=None):
        result = CliRunner().invoke(app, [str(item) for item in arguments], env=env or {})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        result.json = _document(result.stdout)
        return result

    return call


def _document(text):
    try:
        return json.loads(text)
    except ValueError:
        return None
