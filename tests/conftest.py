"""For all tests: the checkout on the path, examples without a stopwatch, and no skip that nobody
sees.

With CI=true a test that is skipped fails, unless its reason stands in EXPECTED_SKIPS: what CI's
machine cannot have is known beforehand.
"""

import os
import sys
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

# A loaded machine is no fault of the code's; pytest's own time limit still ends what hangs.
hypothesis.settings.register_profile("project", deadline=None)
hypothesis.settings.load_profile("project")

CHECKOUT = Path(__file__).resolve().parents[1]
# `tools.demo` and `tests.support` are packages of the checkout, not of the installed project.
sys.path.insert(0, str(CHECKOUT))

EXPECTED_SKIPS = frozenset({"needs a CUDA or ROCm GPU"})


def unexpected(reason: str) -> bool:
    words = reason.removeprefix("Skipped: ")
    return os.environ.get("CI") == "true" and words not in EXPECTED_SKIPS


def skip_reason(longrepr: object) -> str:
    return str(longrepr[2]) if isinstance(longrepr, tuple) else str(longrepr)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = skip_reason(report.longrepr)
        if unexpected(reason):
            report.outcome = "failed"
            report.longrepr = f"skipped in CI, which is a failure: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped:
        reason = skip_reason(report.longrepr)
        if unexpected(reason):
            report.outcome = "failed"
            report.longrepr = f"skipped in CI, which is a failure: {reason}"
    return report
