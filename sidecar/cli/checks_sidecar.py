"""Does the sidecar answer, is the adapter attached, can the ledger be written?"""

import time
from collections.abc import Iterator
from pathlib import Path

from sidecar.cli.check import Check, fail, ok, warn
from sidecar.cli.client import SidecarClient
from sidecar.cli.documents import Document
from sidecar.cli.errors import CommandError, Unreachable
from sidecar.cli.probe import Probe
from sidecar.cli.workers import attached_ranks
from sidecar.config_types import split_address

# Before this the clock was surely never set; 2025-01-01.
_PLAUSIBLE_UNIX_S = 1_735_689_600


def sidecar_checks(
    probe: Probe, *, address: str, http_address: str, ledger: Path, worker: str
) -> Iterator[Check]:
    """`address` is the gRPC services', `worker` empty: all that are attached."""
    try:
        with SidecarClient(address, call_timeout_s=5.0) as client:
            workers = client.list_workers()["workers"]
    except Unreachable:
        remedy = "start it with `tokenwitness serve`, or name its address with --sidecar"
        yield fail("sidecar", f"nothing answers at {address}", remedy)
        yield from _ports_free(probe, address, http_address)
    except CommandError as error:
        yield fail("sidecar", error.message, "look into the sidecar's log")
    else:
        yield ok("sidecar", f"answers at {address}, {len(workers)} workers")
        yield _http(probe, http_address)
        yield from attached(workers, worker)
    yield _ledger(probe, ledger)
    yield clock(probe)


def attached(workers: list[Document], wanted: str) -> Iterator[Check]:
    """One check per worker: its scheduler and every rank have to report."""
    chosen = [worker for worker in workers if wanted in ("", worker["worker"])]
    if not chosen:
        name = f"worker {wanted!r}" if wanted else "no worker"
        yield fail(
            "adapter attached",
            f"{name} is not attached" if wanted else "no worker is attached",
            "start the engine with the flags of `tokenwitness engine-args vllm` and look for"
            " `tokenwitness` in its log",
        )
    for worker in chosen:
        name = f"adapter attached: {worker['worker']}"
        ranks, expected = attached_ranks(worker), worker["ranks_expected"]
        scheduler = any(source["kind"] == "SCHEDULER" for source in worker["attached"])
        seen = f"{'' if scheduler else 'no '}scheduler, {ranks} of {expected} ranks"
        if not scheduler or ranks < expected:
            remedy = "look for `tokenwitness` in the log of the process that is missing"
            yield fail(name, seen, remedy)
        elif worker["hole_records"]:
            yield warn(
                name,
                f"{seen}, {worker['hole_records']} records missing",
                "the sidecar or its disk was too slow; verdicts over the gaps are INCOMPARABLE",
            )
        else:
            yield ok(name, seen)


def _ports_free(probe: Probe, *addresses: str) -> Iterator[Check]:
    for address in addresses:
        name = f"port {address}"
        host, port = split_address(address)
        why = probe.may_listen(host, port)
        if why is None:
            yield ok(name, "free")
        else:
            yield fail(name, why, "end the program that uses it, or give the sidecar another port")


def _http(probe: Probe, address: str) -> Check:
    host, port = split_address(address)
    if probe.accepts(host, port):
        return ok(f"port {address}", "answers (health and metrics)")
    return warn(
        f"port {address}",
        "nothing answers",
        "health and metrics are elsewhere: name their address with --http-address",
    )


def _ledger(probe: Probe, path: Path) -> Check:
    why = probe.may_write(path)
    if why is None:
        return ok("ledger", f"{path} can be written")
    return fail("ledger", why, "choose another path (TOKENWITNESS_LEDGER_PATH) or give access")


def clock(probe: Probe) -> Check:
    """Times of the record come from the clock; a restore is also noticed by how far it jumps."""
    now = time.time()
    if now < _PLAUSIBLE_UNIX_S:
        return fail("clock", f"{now:.0f} s since 1970", "set the machine's clock")
    source = probe.read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    if source is None:
        return ok("clock", "plausible")
    return ok("clock", f"plausible, source {source.strip()}")
