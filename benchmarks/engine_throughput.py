"""Throughput of the CPU engine with and without the adapter, in interleaved pairs.

Two servers stand side by side: one plain, one with the adapter and a sidecar recording it. Only
one of them works at a time. A pair is one round on each, in alternating order, so that drift of
the machine falls on both alike. The figure is the ratio of a pair, not a time.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.results_file import engine_versions, write_result
from tools.demo.engine import Engine, engine_python, small_model, start_engine
from tools.demo.sidecar import start_sidecar
from tools.demo.streams import SessionPlan, open_streams

# vLLM's worker polls for its next step for seconds before it sleeps: the engine that worked last
# must come to rest before the other is measured.
REST_S = 6.0

PROMPTS = (
    "The history of the lighthouse begins with",
    "A train left the station at dawn, and",
    "In the garden behind the old house",
    "The recipe calls for two cups of flour and",
    "When the river froze that winter",
    "The committee met on Tuesday to discuss",
    "Every morning the baker opened his shop and",
    "Long before the city was built",
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=128, help="output tokens of each session")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    options = parser.parse_args(arguments)
    python = engine_python()
    model = small_model(python)
    with tempfile.TemporaryDirectory(prefix="tokenwitness-bench-") as folder:
        figures = _measure(python, model, Path(folder), options)
    figures["engine_versions"] = engine_versions(python)
    print(write_result("cpu-throughput-vllm", figures))


def _measure(
    python: Path, model: Path, folder: Path, options: argparse.Namespace
) -> dict[str, Any]:
    sidecar = start_sidecar(folder)
    engines: list[Engine] = []
    try:
        engines.append(start_engine(python, model, folder / "plain.log"))
        flags = sidecar.command("engine-args", "vllm", "--worker", "bench")["flags"]
        engines.append(start_engine(python, model, folder / "adapter.log", flags=flags))
        sidecar.wait_attached("bench")
        plain, observed = engines
        for engine in engines:
            _round(engine, max(options.batches), 16, "warm-up")
        return {
            "batches": {
                str(batch): _pairs(plain, observed, batch, options) for batch in options.batches
            }
        }
    finally:
        for engine in engines:
            engine.tree.end()
        sidecar.tree.end()


def _pairs(
    plain: Engine, observed: Engine, batch: int, options: argparse.Namespace
) -> dict[str, Any]:
    ratios: list[float] = []
    rates: dict[str, list[float]] = {"plain": [], "adapter": []}
    for pair in range(options.pairs):
        order = [("plain", plain), ("adapter", observed)]
        if pair % 2:
            order.reverse()
        rate = {
            name: _round(engine, batch, options.tokens, f"pair {pair} {name}")
            for name, engine in order
        }
        for name, value in rate.items():
            rates[name].append(value)
        ratios.append(rate["adapter"] / rate["plain"])
        print(f"batch {batch} pair {pair}: ratio {ratios[-1]:.4f}", flush=True)
    quartiles = statistics.quantiles(ratios, n=4)
    return {
        "pairs": len(ratios),
        "ratio_median": round(statistics.median(ratios), 4),
        "ratio_quartiles": [round(quartiles[0], 4), round(quartiles[2], 4)],
        "ratio_min": round(min(ratios), 4),
        "ratio_max": round(max(ratios), 4),
        "tokens_per_s_median": {
            name: round(statistics.median(values), 2) for name, values in rates.items()
        },
    }


def _round(engine: Engine, batch: int, tokens: int, name: str) -> float:
    """Tokens per second of one batch, from the first request to the last token.

    The prompt differs from round to round, so that the prefix cache takes no part.
    """
    plans = [
        SessionPlan(f"{name} {i}", f"{name} {i}: {PROMPTS[i % len(PROMPTS)]}", tokens)
        for i in range(batch)
    ]
    time.sleep(REST_S)
    started = time.monotonic()
    streams = open_streams(engine.url, engine.model, plans)
    streams.wait_done()
    streams.raise_errors()
    elapsed = time.monotonic() - started
    return sum(streams.counts()) / elapsed


if __name__ == "__main__":
    main()
