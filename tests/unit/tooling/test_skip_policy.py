"""In CI a skip that nobody expected is a failure; elsewhere it is a skip."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).resolve().parents[2] / "conftest.py"

TESTS = """
import pytest

def test_expected():
    pytest.skip("needs a CUDA or ROCm GPU")

def test_unexpected():
    pytest.skip("was too lazy")

@pytest.mark.skipif(True, reason="marked")
def test_marked():
    pass

@pytest.mark.xfail(strict=True)
def test_known_fault():
    assert False
"""
MODULE = "import pytest\npytest.importorskip('no_such_module_anywhere')\n"


def outcome(folder: Path, source: str, ci: str) -> tuple[int, str]:
    shutil.copy(CONFTEST, folder / "conftest.py")
    (folder / "test_sample.py").write_text(source)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder)],
        cwd=folder,
        env={**os.environ, "CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stdout


def test_skips_fail_in_ci(tmp_path: Path):
    code, out = outcome(tmp_path, TESTS, "true")
    assert code == 1
    assert "1 failed, 1 skipped, 1 xfailed, 1 error" in out
    assert "was too lazy" in out


def test_skips_are_skips_elsewhere(tmp_path: Path):
    code, out = outcome(tmp_path, TESTS, "")
    assert code == 0
    assert "3 skipped, 1 xfailed" in out


@pytest.mark.parametrize(("ci", "code"), [("true", 2), ("", 5)])
def test_a_module_that_skips_itself(tmp_path: Path, ci: str, code: int):
    assert outcome(tmp_path, MODULE, ci)[0] == code
