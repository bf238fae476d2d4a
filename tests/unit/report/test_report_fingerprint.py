"""The host's fingerprint, on this machine and on a made-up one with a driver."""

from pathlib import Path

import pytest

from engine_adapters import fingerprint

NVRM = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Release Build  (x)\n"
    "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
)
CLOSED_NVRM = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 2023\n"


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    version = tmp_path / "version"
    version.write_text(NVRM)
    for bus in ("a", "b"):
        folder = tmp_path / "gpus" / bus
        folder.mkdir(parents=True)
        (folder / "information").write_text("Model: \t\t NVIDIA H200\nIRQ: 1\n")
    monkeypatch.setattr(fingerprint, "_NVIDIA_VERSION", version)
    monkeypatch.setattr(fingerprint, "_NVIDIA_DEVICES", tmp_path / "gpus")
    return version


def test_this_machine_has_a_fingerprint_of_plain_strings():
    found = fingerprint.host_fingerprint()
    assert {"kernel", "cpu", "python"} <= set(found)
    assert all(isinstance(value, str) and value for value in found.values())
    assert found == fingerprint.host_fingerprint()


def test_driver_and_devices_are_read_from_files(driver):
    found = fingerprint.host_fingerprint()
    assert found["driver"] == "580.159.03"
    assert found["device"] == "2 x NVIDIA H200"


def test_the_closed_kernel_module_is_read_as_well(driver):
    driver.write_text(CLOSED_NVRM)
    assert fingerprint.host_fingerprint()["driver"] == "535.104.05"


def test_what_cannot_be_read_is_unknown_and_what_does_not_apply_is_absent(
    driver, tmp_path, monkeypatch
):
    driver.write_text("something else")
    monkeypatch.setattr(fingerprint, "_NVIDIA_DEVICES", tmp_path / "none")
    found = fingerprint.host_fingerprint()
    assert (found["driver"], found["device"]) == ("unknown", "unknown")
    driver.unlink()
    assert not {"driver", "device"} & set(fingerprint.host_fingerprint())
