"""Can this machine dump and restore an engine with CRIU?"""

import re
from collections.abc import Iterator

from sidecar.cli.check import Check, fail, first_line, ok, warn
from sidecar.cli.probe import Probe

# CRIU 3.17 and older do not know the vDSO of newer kernels; up to 4.1 they fail on 6.16 and
# newer (SO_PASSCRED on TCP). 4.2 works on both.
_CRIU_FOR_NEW_KERNELS = (4, 2)
_NEW_KERNEL = (6, 16)
_CRIU_FOR_ANY = (4, 0)
_CAPABILITY_BITS = {"CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21, "CAP_CHECKPOINT_RESTORE": 40}

Version = tuple[int, ...]


def machine_checks(probe: Probe, criu: str) -> Iterator[Check]:
    """`criu`: the program's name or path."""
    yield privileges(probe)
    kernel = version_in(probe.kernel())
    yield _kernel(probe, kernel)
    path = probe.find(criu)
    if path is None:
        yield fail(
            "criu",
            f"{criu} was not found",
            "install CRIU 4.2 or newer, or name it with --criu; the driver's own checkpoint"
            " API needs no CRIU",
        )
    else:
        yield criu_version(probe, path, kernel)
        yield criu_works(probe, path)
    yield io_uring(probe)
    yield nftables(probe)


def privileges(probe: Probe) -> Check:
    if probe.user_id() == 0:
        held = _capabilities(probe)
        missing = [name for name, bit in _CAPABILITY_BITS.items() if not held >> bit & 1]
        if not missing:
            return ok("privileges", "root with the capabilities that CRIU needs")
        return fail(
            "privileges",
            f"root without {', '.join(missing)}",
            "run the container privileged, or add these capabilities to it",
        )
    return fail(
        "privileges",
        f"user {probe.user_id()}, not root",
        "dump and restore as root (recording and verifying need no privilege)",
    )


def _capabilities(probe: Probe) -> int:
    status = probe.read("/proc/self/status") or ""
    found = re.search(r"^CapEff:\s*([0-9a-fA-F]+)$", status, re.MULTILINE)
    return int(found[1], 16) if found else 0


def _kernel(probe: Probe, kernel: Version | None) -> Check:
    if kernel is None:
        return warn("kernel", probe.kernel(), "version cannot be read; see what `criu check` says")
    return ok("kernel", probe.kernel())


def criu_version(probe: Probe, path: str, kernel: Version | None) -> Check:
    ran = probe.run([path, "--version"])
    found = version_in(ran.output) if ran is not None else None
    if found is None:
        said = "nothing" if ran is None else first_line(ran.output)
        return fail("criu", f"{path} says {said}", "install CRIU 4.2 or newer")
    shown = f"{'.'.join(map(str, found))} at {path}"
    if kernel is not None and kernel >= _NEW_KERNEL and found < _CRIU_FOR_NEW_KERNELS:
        return fail(
            "criu",
            f"{shown} on kernel {probe.kernel()}",
            "CRIU before 4.2 cannot dump TCP sockets on kernels from 6.16 on; install 4.2.1"
            " or newer (tools/build_criu.sh builds it)",
        )
    if found < _CRIU_FOR_ANY:
        return fail(
            "criu",
            shown,
            "CRIU before 4.0 does not know newer kernels' vDSO nor Python's newer system"
            " calls; install 4.2.1 or newer (tools/build_criu.sh builds it)",
        )
    if found < _CRIU_FOR_NEW_KERNELS:
        return warn("criu", shown, "works up to kernel 6.15; install 4.2.1 or newer")
    return ok("criu", shown)


def criu_works(probe: Probe, path: str) -> Check:
    ran = probe.run([path, "check"], timeout_s=60)
    if ran is not None and ran.status == 0:
        return ok("criu check", first_line(ran.output))
    said = "nothing" if ran is None else first_error(ran.output)
    return fail("criu check", said, "run `criu check -v4` and see what the kernel lacks")


def io_uring(probe: Probe) -> Check:
    text = probe.read("/proc/sys/kernel/io_uring_disabled")
    if text is None:
        return ok("io_uring", "this kernel has no switch for it")
    value = text.strip()
    if value == "2":
        return ok("io_uring", "kernel.io_uring_disabled = 2")
    return fail(
        "io_uring",
        f"kernel.io_uring_disabled = {value}",
        "CRIU cannot dump an io_uring, and vLLM's API server opens one: run"
        " `sysctl -w kernel.io_uring_disabled=2` before the engine starts",
    )


def nftables(probe: Probe) -> Check:
    path = probe.find("nft")
    if path is None:
        return fail(
            "nftables",
            "nft was not found",
            "install the package nftables: CRIU locks the network with it (--network-lock)",
        )
    ran = probe.run([path, "list", "tables"])
    if ran is None or ran.status != 0:
        said = "nothing" if ran is None else first_line(ran.output)
        return warn("nftables", f"{path} says {said}", "run as root, with CAP_NET_ADMIN")
    return ok("nftables", path)


def version_in(text: str) -> Version | None:
    """The first `1.2` or `1.2.3` in a text."""
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return None if found is None else tuple(int(part) for part in found.groups() if part)


def first_error(output: str) -> str:
    """CRIU says the cause in its first line with "Error", the summary after it."""
    errors = [line.strip() for line in output.splitlines() if "Error" in line]
    return (errors[0] if errors else first_line(output))[:200]
