"""A real vLLM on a GPU, checkpointed and restored by the driver in mid-decode, judged each time.

Needs a GPU, vLLM in this Python, and a model folder with a config.json (weights may be dummy:
prompts are token ids). The processes stay; their device memory leaves and comes back.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from benchmarks.driver_checkpoint import DriverCheckpoint
from benchmarks.results_file import write_result
from tools.demo.places import free_port
from tools.demo.processes import ProcessTree, start
from tools.demo.sidecar import Sidecar, start_sidecar
from tools.demo.streams import SessionPlan, Streams, open_streams
from tools.demo.waiting import wait_for

WORKER = "gpu"
MODEL_NAME = "m"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=1500)
    parser.add_argument("--kv-gib", type=float, default=5)
    parser.add_argument("--exact", action="store_true", help="batch-invariant kernels")
    parser.add_argument("--engine-flags", nargs=argparse.REMAINDER, default=[])
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tokenwitness-gpu-") as folder:
        figures = _measure(Path(folder), options)
    name = "h200-restore" + ("-exact" if options.exact else "")
    print(write_result(name, figures))
    wanted = {"RESUMED_EXACT"} if options.exact else {"RESUMED_EXACT", "INCOMPARABLE"}
    return 0 if all(each["verdict"] in wanted for each in figures["rounds"]) else 1


def _measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    exactness = "exact" if options.exact else "noisy"
    sidecar = start_sidecar(folder, {"TOKENWITNESS_SHADOW_EXACTNESS": exactness})
    tree: ProcessTree | None = None
    try:
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        tree = _start_engine(folder, sidecar, port, options)
        sidecar.wait_attached(WORKER)
        plans = [
            SessionPlan(
                name=f"s{i}",
                prompt=[10 + i, *range(100, 120)],
                max_tokens=options.tokens,
                seed=None if i % 2 == 0 else i,
            )
            for i in range(options.sessions)
        ]
        warm = open_streams(url, MODEL_NAME, plans)
        warm.wait_done()
        warm.raise_errors()
        reference = warm.tokens()
        rounds = [
            _round(index, sidecar, tree, open_streams(url, MODEL_NAME, plans), reference, options)
            for index in range(options.rounds)
        ]
    except BaseException:
        print(sidecar.tree.log_tail(60), file=sys.stderr)
        if tree is not None:
            print(tree.log_tail(60), file=sys.stderr)
        raise
    finally:
        if tree is not None:
            print(_adapter_lines(tree), file=sys.stderr)
            tree.signal(signal.SIGTERM)
            tree.end(30)
        sidecar.tree.end()
    return {"sessions": options.sessions, "kv_gib": options.kv_gib, "rounds": rounds}


def _round(  # noqa: PLR0917 - all of it is the setting
    index: int,
    sidecar: Sidecar,
    tree: ProcessTree,
    streams: Streams,
    reference: dict[str, list[int]],
    options: argparse.Namespace,
) -> dict[str, Any]:
    moment = random.Random(index).randrange(options.tokens // 10, options.tokens * 6 // 10)
    streams.wait_for_tokens(moment)
    mark = f"round-{index}"
    made = sidecar.mark(WORKER, mark)
    driver = DriverCheckpoint(_engine_core(tree))
    driver.suspend()
    sidecar.mark_taken(WORKER, mark, "")
    # Longer than any default after which an adapter suspects that its process stood still.
    time.sleep(6)
    resumed = time.time_ns()
    driver.resume()
    verdict = sidecar.restored(WORKER, mark)
    streams.wait_done()
    first_after = min(
        (at for stream in streams.all for at in stream.arrivals if at > resumed), default=resumed
    )
    found = {
        "moment": moment,
        "marked_step": made["step"],
        "phases_s": driver.seconds,
        "verdict": verdict.name,
        "trigger": verdict.trigger,
        "compared": verdict.compared,
        "state_verdict_s": round(verdict.state_seconds, 3),
        "tokens_before_verdict": verdict.document["tokens_before_verdict"],
        "first_token_after_resume_s": round((first_after - resumed) / 1e9, 3),
        "streams_equal": sum(reference[n] == t for n, t in streams.tokens().items()),
        "reasons": verdict.reasons()[:5],
    }
    print(found, flush=True)
    return found


def _start_engine(
    folder: Path, sidecar: Sidecar, port: int, options: argparse.Namespace
) -> ProcessTree:
    printed = sidecar.command(
        "engine-args", "vllm", "--worker", WORKER, "--engine-url", f"http://127.0.0.1:{port}"
    )
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", options.model, "--served-model-name", MODEL_NAME),
        *("--host", "127.0.0.1", "--port", str(port), "--max-model-len", "4096"),
        *("--kv-cache-memory-bytes", str(int(options.kv_gib * 2**30))),
        *("--max-num-seqs", "32", *printed["flags"], *options.engine_flags),
    ]
    environment = dict(os.environ)
    if options.exact:
        environment["VLLM_BATCH_INVARIANT"] = "1"
    tree = start(command, environment, folder / "engine.log")
    health = f"http://127.0.0.1:{port}/health"
    wait_for(lambda: _healthy(tree, health), "start of the engine", 400, 0.5)
    return tree


def _adapter_lines(tree: ProcessTree) -> str:
    """What the adapter said in the engine's log, with a traceback's lines after it."""
    lines = tree.log.read_text(errors="replace").splitlines()
    wanted = [i for i, line in enumerate(lines) if "engine_adapters" in line or "observed" in line]
    return "\n".join(lines[i] for i in wanted[:40])


def _healthy(tree: ProcessTree, url: str) -> bool:
    if not tree.pids():
        raise SystemExit(f"the engine ended at its start:\n{tree.log_tail(80)}")
    try:
        return httpx.get(url, timeout=2).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def _engine_core(tree: ProcessTree) -> int:
    """The process that holds the model: named by vLLM."""
    for pid in tree.pids():
        name = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        if "EngineCore" in name or "EngineCor" in Path(f"/proc/{pid}/comm").read_text():
            return pid
    raise SystemExit("no process of the tree is vLLM's EngineCore")


if __name__ == "__main__":
    sys.exit(main())
