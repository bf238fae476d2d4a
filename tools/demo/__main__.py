"""Records a real engine, takes it out of the world in mid-decode, brings it back and has it
judged: once as it was, once with one bit of one KV row flipped. Exit 0 only if the first is
RESUMED_EXACT and the second KV_MISMATCH.

usage: python -m tools.demo [--in-place]
"""

import argparse
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

from tools.demo import machine, processes
from tools.demo.criu import find_criu
from tools.demo.engine import Engine, engine_python, small_model, start_engine
from tools.demo.errors import CriuUnavailableError, DemoError
from tools.demo.places import free_port, scratch_folder
from tools.demo.report import progress, show_table
from tools.demo.rounds import (
    WORKER,
    Setting,
    flip_one_bit,
    leave_alone,
    passed,
    play_round,
)
from tools.demo.sessions import PLANS, REFERENCE_TOKENS
from tools.demo.sidecar import EXACT_ENGINE, Sidecar, start_sidecar
from tools.demo.stopping import CriuStopper, InPlaceStopper, Stopper
from tools.demo.streams import open_streams


def choose_stopper() -> Stopper:
    try:
        criu = find_criu()
    except CriuUnavailableError as reason:
        progress(f"no CRIU: {reason}")
        progress("falling back to a stop in place, which proves less: nothing is restored")
        return InPlaceStopper()
    progress(f"CRIU: {criu.binary}")
    return CriuStopper(criu)


def start_all(folder: Path, ends: ExitStack) -> tuple[Sidecar, Engine]:
    """Sidecar first, then the engine; whatever was started is ended with `ends`."""
    python = engine_python()
    model = small_model(python)
    sidecar = start_sidecar(folder, EXACT_ENGINE)
    ends.callback(sidecar.tree.end)
    progress(f"sidecar at {sidecar.grpc_address}, metrics at {sidecar.http_address}")
    port = free_port()
    flags = sidecar.engine_flags(WORKER, f"http://127.0.0.1:{port}")
    progress("engine: vLLM on the CPU with SmolLM2-135M, starting (half a minute)")
    engine = start_engine(
        python,
        model,
        folder / "engine.log",
        flags=flags,
        environment={"TOKENWITNESS_DRILL": "1", "TOKENWITNESS_DRILL_FOLDER": str(folder)},
        port=port,
    )
    ends.callback(engine.tree.end)
    status = sidecar.wait_attached(WORKER)
    progress(f"attached: scheduler and {status['ranks_expected']} rank")
    return sidecar, engine


def uninterrupted(engine: Engine) -> dict[str, list[int]]:
    plans = [plan.limited_to(REFERENCE_TOKENS) for plan in PLANS]
    streams = open_streams(engine.url, engine.model, plans)
    streams.wait_done()
    streams.raise_errors()
    return streams.tokens()


def play(stopper: Stopper) -> bool:
    """Both rounds, everything put back afterwards; whether both came out as they must."""
    with ExitStack() as ends:
        ends.enter_context(machine.io_uring_off())
        ends.enter_context(machine.dumps_forgotten())
        folder = ends.enter_context(scratch_folder("demo-"))
        sidecar, engine = start_all(folder, ends)
        reference = uninterrupted(engine)
        progress(f"reference: {sum(map(len, reference.values()))} tokens without interruption")
        setting = Setting(sidecar, engine, stopper, folder, folder, PLANS, reference)
        clean = play_round(setting, "clean", leave_alone)
        bitflip = play_round(setting, "bitflip", flip_one_bit)
        show_table(stopper.name, [clean, bitflip])
        print(clean.line())
        print(bitflip.line(), flush=True)
        return passed(clean.verdict, bitflip.verdict)


def main() -> int:
    parser = argparse.ArgumentParser(description="See docs and README: make demo.")
    parser.add_argument(
        "--in-place", action="store_true", help="stop and go on in place, even where CRIU works"
    )
    in_place = parser.parse_args().in_place
    # An ended demo must still put the machine back: SIGTERM unwinds like Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        processes.adopt_orphans()
        return 0 if play(InPlaceStopper() if in_place else choose_stopper()) else 1
    except DemoError as error:
        progress(f"failed: {error}")
        return 2


if __name__ == "__main__":
    sys.exit(main())
