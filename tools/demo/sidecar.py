"""The sidecar as a program of its own, spoken to through its command line."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tools.demo.errors import DemoError
from tools.demo.places import free_port
from tools.demo.processes import ProcessTree, exists, start
from tools.demo.verdicts import Verdict
from tools.demo.waiting import wait_for

# For an engine that is exact. Records of the last steps may still lie in the queue of a process
# that freezes; on a loaded machine that is several steps. They are compared, and counted as late.
EXACT_ENGINE = {
    "TOKENWITNESS_SHADOW_EXACTNESS": "exact",
    "TOKENWITNESS_LATE_STEPS_ALLOWED": "8",
}
# The sidecar is installed beside whoever runs this.
PROGRAM = (sys.executable, "-m", "sidecar.cli.main")
START_TIMEOUT_S = 20
ATTACH_TIMEOUT_S = 30
COMMAND_TIMEOUT_S = 300
# Long enough for the replays on a slow machine with other things to do.
VERDICT_TIMEOUT_S = 240


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A running `tokenwitness serve`. `settings` are its environment variables."""

    tree: ProcessTree
    grpc_address: str
    http_address: str
    settings: Mapping[str, str]

    def command(self, *arguments: str) -> dict[str, Any]:
        """The document that a command prints with --json, whatever its exit status.

        DemoError: it printed an error or none at all.
        """
        ended = subprocess.run(
            [*PROGRAM, *arguments, "--sidecar", self.grpc_address, "--json"],
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        said = f"`tokenwitness {' '.join(arguments)}` ended with {ended.returncode}"
        try:
            document: dict[str, Any] = json.loads(ended.stdout)
        except ValueError:
            raise DemoError(f"{said}:\n{ended.stdout}{ended.stderr}") from None
        if "error" in document:
            raise DemoError(f"{said}: {document['error']['message']}")
        return document

    def engine_flags(self, worker: str, engine_url: str) -> list[str]:
        """The flags that load the adapter into vLLM, as the project's own command gives them."""
        document = self.command(
            *("engine-args", "vllm", "--worker", worker, "--engine-url", engine_url)
        )
        return list(document["flags"])

    def worker(self, name: str) -> dict[str, Any] | None:
        """Status of an attached worker; None if the sidecar does not know it."""
        workers = self.command("workers")["workers"]
        return next((found for found in workers if found["worker"] == name), None)

    def mark(self, worker: str, name: str) -> dict[str, Any]:
        """Makes a mark; returns once it is durable."""
        return dict(self.command("mark", "--worker", worker, "--name", name)["mark"])

    def mark_taken(self, worker: str, name: str, image: str) -> None:
        """Says that the checkpoint of the mark was taken."""
        where = ["--image", image] if image else []
        self.command("mark", "--worker", worker, "--name", name, "--complete", *where)

    def restored(self, worker: str, mark: str) -> Verdict:
        """Says that the worker was restored, and waits for the final verdict."""
        found = self.command(
            *("restored", "--worker", worker, "--mark", mark),
            *("--wait", "--timeout", str(VERDICT_TIMEOUT_S)),
        )
        return Verdict(found["verdict"])

    def verdicts(self, worker: str) -> list[Verdict]:
        """Newest first."""
        found = self.command("verdicts", "--worker", worker)["verdicts"]
        return [Verdict(document) for document in found]

    def wait_attached(self, worker: str) -> dict[str, Any]:
        """Until the scheduler and all ranks of the worker have attached."""
        return wait_for(lambda: self._whole(worker), f"attached {worker}", ATTACH_TIMEOUT_S, 0.3)

    def _whole(self, worker: str) -> dict[str, Any] | None:
        status = self.worker(worker)
        whole = status is not None and len(status["attached"]) == status["ranks_expected"] + 1
        return status if whole else None

    def ready(self) -> bool:
        try:
            answer = httpx.get(f"http://{self.http_address}/healthz", timeout=2)
        except httpx.HTTPError:
            return False
        return answer.status_code == httpx.codes.OK


def start_sidecar(folder: Path, settings: Mapping[str, str] | None = None) -> Sidecar:
    """Starts a sidecar with its ledger and log in `folder` and waits until it answers."""
    own = {
        "TOKENWITNESS_GRPC_ADDRESS": f"127.0.0.1:{free_port()}",
        "TOKENWITNESS_HTTP_ADDRESS": f"127.0.0.1:{free_port()}",
        "TOKENWITNESS_LEDGER_PATH": str(folder / "ledger.sqlite"),
        **(settings or {}),
    }
    return _serve(own, folder / "sidecar.log")


def restart_sidecar(sidecar: Sidecar) -> Sidecar:
    """Kills it and starts it again on the same addresses and the same ledger."""
    sidecar.tree.end()
    return _serve(sidecar.settings, sidecar.tree.log)


def _serve(settings: Mapping[str, str], log: Path) -> Sidecar:
    tree = start([*PROGRAM, "serve"], {**os.environ, **settings}, log)
    sidecar = Sidecar(
        tree,
        settings["TOKENWITNESS_GRPC_ADDRESS"],
        settings["TOKENWITNESS_HTTP_ADDRESS"],
        dict(settings),
    )
    try:
        wait_for(lambda: _answers(sidecar), "start of the sidecar", START_TIMEOUT_S, 0.1)
    except BaseException:
        tree.end()
        raise
    return sidecar


def _answers(sidecar: Sidecar) -> bool:
    if not exists(sidecar.tree.root):
        raise DemoError(f"the sidecar ended at its start:\n{sidecar.tree.log_tail()}")
    return sidecar.ready()
