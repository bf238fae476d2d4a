"""vLLM's engine in this process, with the adapter and a recording reporter."""

import contextlib
import gc
import os
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import pytest

os.environ.update(
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    OMP_NUM_THREADS="1",
    HF_HUB_OFFLINE="1",
    VLLM_NO_USAGE_STATS="1",
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_LOGGING_LEVEL="ERROR",
)

pytest.importorskip("vllm", reason="needs the engine's environment: tools/engine_env.sh vllm")

with warnings.catch_warnings():
    # The engine's imports warn; that is its business.
    warnings.simplefilter("ignore")
    from engine_adapters.vllm import assembly

from tests.engines.vllm_support.recording import RecordingReporter

# For test modules: the engine's own warnings are not ours to raise.
MARKS = [
    pytest.mark.engine,
    # A step that is interrupted leaves an engine that never ends: only a hang may hit this.
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore"),
]
MODULE = "engine_adapters.vllm.connector"
NAME = "TokenwitnessConnector"
TRANSFER = {"kv_connector": NAME, "kv_connector_module_path": MODULE, "kv_role": "kv_producer"}
PLAIN = {"max_model_len": 512, "block_size": 32, "max_num_seqs": 16}


def model_folder() -> str:
    """The small model's folder. Skips the test where there is none."""
    cache = os.environ.get("TOKENWITNESS_CACHE") or Path(
        os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "tokenwitness"
    )
    folder = os.environ.get("TOKENWITNESS_MODEL") or str(
        Path(cache, "models", "smollm2-135m-bfloat16")
    )
    if not Path(folder, "config.json").is_file():
        pytest.skip(f"no model in {folder}: make it with tools/make_model.py")
    return folder


@dataclass
class Engine:
    """`scheduler` and `rank` are the recording reporters, None without an adapter."""

    llm: object
    reporters: list = field(default_factory=list)

    @property
    def scheduler(self):
        return next(r for r in reversed(self.reporters) if r.identity.kind.value == "scheduler")

    @property
    def rank(self):
        return next(r for r in reversed(self.reporters) if r.identity.kind.value == "rank")

    @property
    def core(self):
        return self.llm.llm_engine.engine_core.engine_core

    def generate(self, prompts, params):
        """Token ids of every output of every prompt, from an empty prefix cache."""
        self.core.scheduler.reset_prefix_cache()
        found = self.llm.generate(
            [{"prompt_token_ids": list(p)} for p in prompts], params, use_tqdm=False
        )
        return [[list(each.token_ids) for each in request.outputs] for request in found]


running_before = []


@contextlib.contextmanager
def running(*, adapter=True, transfer=None, **settings):
    """An engine that is shut down when done."""
    from vllm import LLM
    from vllm.distributed import cleanup_dist_env_and_memory
    from vllm.distributed.kv_transfer import ensure_kv_transfer_shutdown

    reporters = []
    once = not running_before
    running_before.append(True)

    def make(config, identity, **given):
        reporters.append(RecordingReporter(config, identity, **given))
        return reporters[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly, "SourceReporter", make)
        if not once:
            # Done for this process; a second time it trips over numba's modules.
            from vllm.platforms import current_platform

            patch.setattr(
                type(current_platform),
                "register_triton_kernel_overrides",
                lambda *_: None,
                raising=False,
            )
        # Its own defaults differ between machines; tests say what they want.
        chosen = {"async_scheduling": False, **PLAIN, **settings}
        if adapter:
            chosen["kv_transfer_config"] = transfer or dict(TRANSFER)
        llm = LLM(model_folder(), dtype="bfloat16", enforce_eager=True, seed=0, **chosen)
        engine = Engine(llm, reporters)
        try:
            yield engine
        finally:
            llm.llm_engine.engine_core.shutdown()
            ensure_kv_transfer_shutdown()
            del llm, engine.llm
            cleanup_dist_env_and_memory()
            gc.collect()
