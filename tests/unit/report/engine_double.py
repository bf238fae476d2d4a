"""A process that reports as an engine would; driven by test_report_process.py.

Arguments: address, what to do. Prints "ready" once attached, then one line for each event.
"""

import os
import sys
import time

from engine_adapters.report.attestations import RankBody
from engine_adapters.report.config import AdapterConfig
from engine_adapters.report.identity import SourceIdentity, SourceKind
from engine_adapters.report.records import CommitRecord
from engine_adapters.report.reporter import SourceReporter


def say(text: str) -> None:
    print(text, flush=True)


def step(reporter: SourceReporter, number: int) -> None:
    while (due := reporter.due()) is not None:
        say(f"due {due.origin.value} hold={due.hold}")
        reporter.attest(due, RankBody(kv=()), step=number - 1, idle=False)
        say(f"hold {reporter.hold(due).value}")
    reporter.put(CommitRecord(step=number))
    reporter.note_step(number)


def main() -> None:
    reporter = SourceReporter(
        AdapterConfig(address=sys.argv[1], worker="w", suspect_after_ms=400),
        SourceIdentity(worker="w", incarnation="life-1", kind=SourceKind.RANK),
        fingerprint=dict,
        on_idle_attest=lambda due: RankBody(kv=()),
    )
    reporter.start()
    while reporter.counters.connects == 0:
        time.sleep(0.005)
    say("ready")
    if sys.argv[2] == "fork":
        child = os.fork()
        if child == 0:
            step(reporter, 999)
            os._exit(0 if reporter.counters.records == 0 else 1)
        say(f"child {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")
    for number in range(1, 10_000):
        step(reporter, number)
        if number == 3 and sys.argv[2] == "exit":
            sys.exit(0)
        time.sleep(0.01)


if __name__ == "__main__":
    main()
