"""The host's part of the fingerprint: what a checkpoint was taken on, whatever the engine.

Names and the word "unknown" are the wire contract's (types.proto, Fingerprint).
"""

import platform
import re
from importlib import metadata
from pathlib import Path

UNKNOWN = "unknown"

_NVIDIA_VERSION = Path("/proc/driver/nvidia/version")
_NVIDIA_DEVICES = Path("/proc/driver/nvidia/gpus")
_CPU = Path("/proc/cpuinfo")


def host_fingerprint() -> dict[str, str]:
    """Kernel, processor, Python, torch, adapter and, where there is an NVIDIA driver, its
    version and devices. Reads files only: no driver is initialised, nothing stays open. Names
    that do not apply are absent; what cannot be read is "unknown". Never raises.
    """
    found = {
        "kernel": platform.release() or UNKNOWN,
        "cpu": _cpu_model(),
        "python": platform.python_version(),
        "adapter_version": _version_of("tokenwitness") or UNKNOWN,
    }
    torch = _version_of("torch")
    if torch:
        found["torch"] = torch
    if _NVIDIA_VERSION.exists():
        found["driver"] = _driver_version()
        found["device"] = _devices()
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def _cpu_model() -> str:
    match = re.search(r"^model name\s*:\s*(.+)$", _read(_CPU), re.MULTILINE)
    return match.group(1).strip() if match else platform.machine() or UNKNOWN


def _version_of(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _driver_version() -> str:
    match = re.search(r"Kernel Module\b.*?\s(\d+\.\d+(?:\.\d+)*)\b", _read(_NVIDIA_VERSION))
    return match.group(1) if match else UNKNOWN


def _devices() -> str:
    """Models, the same ones once with their number: "2 x NVIDIA H200"."""
    counts: dict[str, int] = {}
    try:
        folders = sorted(_NVIDIA_DEVICES.iterdir())
    except OSError:
        return UNKNOWN
    for folder in folders:
        match = re.search(r"^Model:\s*(.+)$", _read(folder / "information"), re.MULTILINE)
        model = match.group(1).strip() if match else UNKNOWN
        counts[model] = counts.get(model, 0) + 1
    return ", ".join(f"{count} x {model}" for model, count in counts.items()) or UNKNOWN
