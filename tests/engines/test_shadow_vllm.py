"""Shadow replays against a real vLLM server on the CPU.

Runs in the sidecar's environment, the server in the engine's: TOKENWITNESS_VLLM_PYTHON names its
Python, TOKENWITNESS_MODEL the model's folder (default: the one that `make model` writes).
"""

import contextlib
import os
import signal
import socket
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from sidecar.core.events import Sampling
from sidecar.shadow.errors import EngineFrozen, EngineRefused, EngineUnreachable
from sidecar.shadow.plan import ShadowRequest
from sidecar.shadow.results import FailureKind
from sidecar.shadow.runner import run_shadow
from sidecar.shadow.settings import ShadowMode, ShadowSettings
from sidecar.shadow.vllm_http import VllmHttpEngine, VllmHttpSettings

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

START_S = 240
# Prefill and decode round differently on the CPU in bfloat16. A replay may leave the session's
# path only where the engine itself was undecided, in units of log-probability.
NEAR_TIE = 0.2
PROMPT = "The lighthouse keeper wrote a letter about the storm. It began like this:"
TOKENS = 48
GREEDY = Sampling(temperature=0.0, ignore_eos=True)
SEEDED = Sampling(temperature=0.9, top_p=0.95, top_k=50, seed=1234, ignore_eos=True)


def _free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def _skip(reason):
    print(reason)
    pytest.skip(reason)


def _made_model():
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = os.environ.get("TOKENWITNESS_CACHE") or Path(home, "tokenwitness")
    return str(Path(cache, "models", "smollm2-135m-bfloat16"))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    python = os.environ.get("TOKENWITNESS_VLLM_PYTHON")
    if not python:
        _skip("set TOKENWITNESS_VLLM_PYTHON to replay on a real engine: make engine-env prints it")
    model = os.environ.get("TOKENWITNESS_MODEL") or _made_model()
    if not Path(model, "config.json").is_file():
        _skip(f"no model in {model}: make it with `make model`")
    port = _free_port()
    log = tmp_path_factory.mktemp("vllm") / "server.log"
    command = [
        *(python, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", model, "--served-model-name", "small"),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--enforce-eager", "--block-size", "32", "--dtype", "bfloat16"),
        *("--max-model-len", "1024", "--enable-prompt-tokens-details"),
    ]
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_ATTN_SPLIT_KV": "0",
    }
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_until_up(url, process, log)
        yield url, process
    finally:
        _stop(process)


def _wait_until_up(url, process, log):
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/v1/models", timeout=2, trust_env=False).status_code == 200:
                return
        time.sleep(0.5)
    tail = log.read_text(errors="replace")[-3000:]
    pytest.fail(f"server did not come up within {START_S} s:\n{tail}")


def _stop(process):
    for sign, patience in ((signal.SIGTERM, 30), (signal.SIGKILL, 30)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
        break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def sessions(server):
    """What users got, asked for as users do. One at a time, so that batches do not differ."""
    url, _ = server
    return {
        "greedy": _user_session(url, "greedy", GREEDY),
        "seeded": _user_session(url, "seeded", SEEDED),
        "penalised": _user_session(url, "penalised", replace(GREEDY, frequency_penalty=0.7)),
        "stopped": _user_session(url, "stopped", replace(GREEDY, stop=("zzzz",))),
    }


def _user_session(url, name, sampling):
    body = {
        "model": "small",
        "prompt": PROMPT,
        "max_tokens": TOKENS,
        "return_token_ids": True,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "seed": sampling.seed,
        "frequency_penalty": sampling.frequency_penalty,
        "stop": list(sampling.stop),
        "ignore_eos": sampling.ignore_eos,
    }
    reply = httpx.post(f"{url}/v1/completions", json=body, timeout=120, trust_env=False).json()
    choice = reply["choices"][0]
    assert len(choice["token_ids"]) == TOKENS
    prompt = tuple(choice["prompt_token_ids"])
    return ShadowRequest(
        session_id=name,
        prompt_tokens=prompt,
        output_tokens=tuple(choice["token_ids"]),
        restored_at=len(prompt) + 20,
        sampling=sampling,
        k=16,
    )


def _history(request):
    return (*request.prompt_tokens, *request.output_tokens)


async def _replay(server, requests, *modes, **more):
    url, _ = server
    settings = ShadowSettings(modes=modes, concurrency=1, **more)
    async with VllmHttpEngine(VllmHttpSettings(base_url=url)) as engine:
        results = await run_shadow(engine, requests, settings)
    return {(result.session_id, result.mode): result for result in results}


@pytest.mark.parametrize("name", ["seeded", "penalised", "stopped"])
async def test_replay_from_the_prompt_is_the_same_computation(server, sessions, name):
    request = sessions[name]
    results = await _replay(server, [request], ShadowMode.INDEPENDENT)
    result = results[name, ShadowMode.INDEPENDENT]
    assert result.error is None
    assert result.first_position == len(request.prompt_tokens)
    assert result.tokens == request.output_tokens[: 20 + 16]
    assert not result.cached_tokens


async def test_seed_matters(server, sessions):
    other = replace(sessions["seeded"], sampling=replace(SEEDED, seed=1235))
    results = await _replay(server, [other], ShadowMode.INDEPENDENT)
    assert results["seeded", ShadowMode.INDEPENDENT].tokens != other.output_tokens[:36]


async def test_greedy_replay_from_the_position_leaves_the_path_only_at_a_tie(server, sessions):
    request = sessions["greedy"]
    modes = (ShadowMode.INDEPENDENT, ShadowMode.CACHED)
    results = await _replay(server, [request], *modes)
    found = _history(request)[request.restored_at : request.restored_at + 16]
    for mode in modes:
        result = results["greedy", mode]
        assert result.error is None
        assert result.first_position == request.restored_at
        assert len(result.tokens) == 16
        margins = result.margins_against(found)
        assert None not in margins
        if result.tokens != found:
            first = [a == b for a, b in zip(result.tokens, found, strict=True)].index(False)
            print(f"{mode.value}: left the path at token {first}, margin {margins[first]:.3f}")
            assert margins[first] < NEAR_TIE
    assert not results["greedy", ShadowMode.INDEPENDENT].cached_tokens
    assert results["greedy", ShadowMode.CACHED].cached_tokens >= 32


async def test_forced_pass_agrees_with_the_session_and_finds_a_foreign_token(server, sessions):
    request = sessions["greedy"]
    honest = (await _replay(server, [request], ShadowMode.FORCED))["greedy", ShadowMode.FORCED]
    assert honest.error is None
    assert len(honest.scores) == 16
    assert max(score.shortfall for score in honest.scores) < NEAR_TIE

    output = list(request.output_tokens)
    output[20 + 5] = output[20 + 5] % 40_000 + 3
    damaged = replace(request, output_tokens=tuple(output))
    results = await _replay(server, [damaged], ShadowMode.FORCED)
    scores = results["greedy", ShadowMode.FORCED].scores
    assert max(score.shortfall for score in scores[:5]) < NEAR_TIE
    assert scores[5].position == request.restored_at + 5
    assert scores[5].shortfall > 1.0


async def test_unseeded_session_is_scored(server, sessions):
    request = replace(sessions["seeded"], sampling=replace(SEEDED, seed=None))
    results = await _replay(server, [request], ShadowMode.INDEPENDENT)
    result = results["seeded", ShadowMode.FORCED]
    assert result.error is None
    assert result.tokens == ()
    assert all(score.rank >= 1 and score.logprob <= 0 for score in result.scores)


async def test_prompt_beyond_the_engine_s_limit_is_refused_in_its_words(server):
    url, _ = server
    async with VllmHttpEngine(VllmHttpSettings(base_url=url)) as engine:
        assert (await engine.describe(timeout_s=10)).max_context == 1024
        with pytest.raises(EngineRefused, match="1024") as caught:
            await engine.complete(
                [1] * 1100,
                sampling=GREEDY,
                max_tokens=4,
                cache_salt=None,
                request_id="tokenwitness-shadow-too-long",
                logprobs=2,
                timeout_s=30,
            )
    assert caught.value.status == 400


async def test_load_is_told(server):
    url, _ = server
    async with VllmHttpEngine(VllmHttpSettings(base_url=url)) as engine:
        load = await engine.load(timeout_s=10)
    assert load is not None
    assert (load.running, load.waiting) == (0, 0)


def _children(process):
    """Processes of the engine behind the API server."""
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(pid) for pid in listed.split()]


async def test_frozen_engine_is_noticed_though_its_health_is_good(server, sessions):
    url, process = server
    children = _children(process)
    assert children
    for child in children:
        os.kill(child, signal.SIGSTOP)
    try:
        async with httpx.AsyncClient(trust_env=False) as client:
            assert (await client.get(f"{url}/health", timeout=10)).status_code == 200
        settings = VllmHttpSettings(base_url=url, stall_timeout_s=2.0)
        async with VllmHttpEngine(settings) as engine:
            (result,) = await run_shadow(
                engine, [sessions["greedy"]], ShadowSettings(request_timeout_s=20.0)
            )
        assert result.error.kind is FailureKind.FROZEN
    finally:
        for child in children:
            os.kill(child, signal.SIGCONT)
    results = await _replay(server, [sessions["seeded"]], ShadowMode.INDEPENDENT)
    assert results["seeded", ShadowMode.INDEPENDENT].error is None


async def test_stopped_engine_is_unreachable(server, sessions):
    """Runs last: it ends the server."""
    url, process = server
    _stop(process)
    settings = VllmHttpSettings(base_url=url, attempts=2)
    async with VllmHttpEngine(settings) as engine:
        with pytest.raises((EngineUnreachable, EngineFrozen)):
            await engine.describe(timeout_s=5)
        (result,) = await run_shadow(engine, [sessions["greedy"]], ShadowSettings())
    assert result.error.kind is FailureKind.UNREACHABLE
