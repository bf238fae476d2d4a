"""A real vLLM OpenAI server on the CPU, started so that a checkpoint can take it."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from tools.demo.errors import DemoError
from tools.demo.places import CHECKOUT, cache_folder, free_port
from tools.demo.processes import ProcessTree, exists, start
from tools.demo.waiting import wait_for

START_TIMEOUT_S = 240
MODEL_NAME = "demo"
# The engine gives the same bits whatever else is in its batch: no split attention, no one-row
# products (the adapter pads those on request).
EXACT = {"TOKENWITNESS_CPU_EXACT": "1", "VLLM_CPU_ATTN_SPLIT_KV": "0"}
SERVER = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "UV_USE_IO_URING": "0",
    # Threads that wait for each other sleep: spinning, they starve whoever shares the cores.
    "OMP_WAIT_POLICY": "passive",
    # Its tree is dumped whole: no helper may outlive or precede it.
    "TOKENIZERS_PARALLELISM": "false",
}


@dataclass(frozen=True, slots=True)
class Engine:
    tree: ProcessTree
    url: str
    model: str = MODEL_NAME

    def healthy(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=2).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False


def engine_python() -> Path:
    """Python of the engine's environment, made if need be. DemoError if it cannot be."""
    return Path(_output([str(CHECKOUT / "tools" / "engine_env.sh"), "vllm"]))


def small_model(python: Path) -> Path:
    """Folder of the small model in bfloat16, made if need be."""
    out = cache_folder() / "models" / "smollm2-135m-bfloat16"
    return Path(_output([str(python), str(CHECKOUT / "tools" / "make_model.py"), str(out)]))


def start_engine(
    python: Path,
    model: Path,
    log: Path,
    *,
    flags: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    port: int | None = None,
    wrapper: Sequence[str] = (),
) -> Engine:
    """Starts the server and waits until it answers. DemoError carries the end of its log.

    `wrapper` is a command that starts the one behind it and stays its parent.
    """
    port = port or free_port()
    command = [
        *wrapper,
        *(str(python), "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(model), "--served-model-name", MODEL_NAME),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", "bfloat16", "--enforce-eager", "--block-size", "32"),
        *("--max-model-len", "4096"),
        *flags,
    ]
    tree = start(command, {**os.environ, **SERVER, **EXACT, **(environment or {})}, log)
    engine = Engine(tree, f"http://127.0.0.1:{port}")
    try:
        wait_for(lambda: _answers(engine), "start of the engine", START_TIMEOUT_S, 0.5)
    except BaseException:
        tree.end()
        raise
    return engine


def _answers(engine: Engine) -> bool:
    if not exists(engine.tree.root):
        raise DemoError(f"the engine ended at its start:\n{engine.tree.log_tail()}")
    return engine.healthy()


def _output(command: list[str]) -> str:
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode != 0:
        raise DemoError(f"{command[0]} failed with {ended.returncode}; its message stands above")
    return ended.stdout.strip()
