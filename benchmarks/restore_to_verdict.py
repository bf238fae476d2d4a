"""From a real restore to the verdict on memory: sessions of 1,000 tokens on the CPU engine.

Each round dumps the whole server with CRIU in mid-decode, restores it and waits for the verdict.
The time counts from the moment in which the sidecar notices the restore (the held worker's first
word) to the verdict on memory; the phases of dump and restore stand beside it.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.results_file import engine_versions, write_result
from tools.demo import machine, processes
from tools.demo.criu import find_criu
from tools.demo.engine import Engine, engine_python, small_model, start_engine
from tools.demo.places import free_port, scratch_folder
from tools.demo.sidecar import Sidecar, start_sidecar
from tools.demo.stopping import CriuStopper
from tools.demo.streams import SessionPlan, open_streams

WORKER = "bench"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=1000, help="of each session when dumped")
    options = parser.parse_args(arguments)
    processes.adopt_orphans()
    python = engine_python()
    with ExitStack() as ends:
        ends.enter_context(machine.io_uring_off())
        ends.enter_context(machine.dumps_forgotten())
        folder = ends.enter_context(scratch_folder("bench-"))
        sidecar = start_sidecar(folder, {"TOKENWITNESS_SHADOW_EXACTNESS": "exact"})
        ends.callback(sidecar.tree.end)
        port = free_port()
        flags = sidecar.command(
            "engine-args", "vllm", "--worker", WORKER, "--engine-url", f"http://127.0.0.1:{port}"
        )["flags"]
        engine = start_engine(
            python, small_model(python), folder / "engine.log", flags=flags, port=port
        )
        ends.callback(engine.tree.end)
        sidecar.wait_attached(WORKER)
        stopper = CriuStopper(find_criu())
        rounds = [
            _round(index, sidecar, engine, stopper, folder, options)
            for index in range(options.rounds)
        ]
    seconds = [each["verdict_s"] for each in rounds]
    figures = {
        "sessions": options.sessions,
        "tokens_per_session": options.tokens,
        "verdict_s_median": round(statistics.median(seconds), 3),
        "verdict_s_max": round(max(seconds), 3),
        "rounds": rounds,
        "engine_versions": engine_versions(python),
    }
    print(write_result("cpu-restore-to-verdict", figures))
    return 0 if all(each["verdict"] == "RESUMED_EXACT" for each in rounds) else 1


def _round(  # noqa: PLR0917 - all of it is the setting
    index: int,
    sidecar: Sidecar,
    engine: Engine,
    stopper: CriuStopper,
    folder: Path,
    options: argparse.Namespace,
) -> dict[str, Any]:
    decoded = 64
    plans = [
        SessionPlan(
            name=f"{index}-{i}",
            # Token ids of no meaning, other ones for each session: no prefix is shared.
            prompt=[1000 + 40 * index + i + 3 * j for j in range(options.tokens - decoded)],
            max_tokens=decoded + 160,
        )
        for i in range(options.sessions)
    ]
    streams = open_streams(engine.url, engine.model, plans)
    streams.wait_for_tokens(decoded)
    name = f"round-{index}"
    sidecar.mark(WORKER, name)
    stopped = stopper.stop(engine.tree, folder / name)
    sidecar.mark_taken(WORKER, name, stopped.image)
    restore_s = stopped.resume()
    verdict = sidecar.restored(WORKER, name)
    streams.wait_done()
    found = {
        "verdict": verdict.name,
        "verdict_s": round(verdict.state_seconds, 3),
        "dump_s": round(stopped.seconds, 2),
        "restore_s": round(restore_s, 2),
        "kv_rows": verdict.compared["kv_rows"],
        "tensors": verdict.compared["tensors"],
        "tokens_before_verdict": verdict.document["tokens_before_verdict"],
    }
    print(found, flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
