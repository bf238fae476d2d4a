"""CRIU's action script, with a `tokenwitness` that writes down how it was called."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "deploy" / "hooks" / "criu-action.sh"


@pytest.fixture
def called(tmp_path):
    """Runs the script for a stage; gives its exit status, what it ran, and what it said."""

    def call(stage, *, ends_with=0, **environment):
        calls = tmp_path / "calls"
        calls.unlink(missing_ok=True)
        stub = tmp_path / "tokenwitness"
        stub.write_text(f'#!/bin/sh\necho "$@" >> {calls}\nexit {ends_with}\n')
        stub.chmod(0o755)
        ended = subprocess.run(
            [str(SCRIPT)],
            env={
                "PATH": f"{tmp_path}:{os.environ['PATH']}",
                "CRTOOLS_SCRIPT_ACTION": stage,
                "CRTOOLS_IMAGE_DIR": "/images/nightly",
                "TOKENWITNESS_WORKER": "w1",
                **environment,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        ran = calls.read_text().splitlines() if calls.exists() else []
        return ended.returncode, ran, ended.stderr

    return call


@pytest.mark.parametrize(
    ("stage", "command"),
    [
        ("pre-dump", "mark --worker w1 --name nightly"),
        ("post-dump", "mark --worker w1 --name nightly --complete --image /images/nightly"),
        ("post-resume", "restored --worker w1 --mark nightly"),
    ],
)
def test_each_stage_has_its_command(called, stage, command):
    assert called(stage)[:2] == (0, [command])


@pytest.mark.parametrize("stage", ["network-lock", "post-restore", ""])
def test_other_stages_do_nothing(called, stage):
    assert called(stage)[:2] == (0, [])


def test_a_failed_mark_is_told_and_does_not_fail_the_dump(called):
    status, ran, said = called("pre-dump", ends_with=3)
    assert (status, len(ran)) == (0, 1)
    assert "ended with 3" in said


def test_a_failed_mark_fails_the_dump_where_that_is_wanted(called):
    assert called("pre-dump", ends_with=3, TOKENWITNESS_STRICT="1")[0] == 1


def test_without_a_worker_nothing_is_run(called):
    status, ran, said = called("pre-dump", TOKENWITNESS_WORKER="")
    assert (status, ran) == (0, [])
    assert "TOKENWITNESS_WORKER" in said
