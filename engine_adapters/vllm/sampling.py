"""vLLM's sampling parameters as the contract says them."""

from typing import Any

import xxhash

from engine_adapters.report.records import Sampling

# Where a request's parameter is set, what the API cannot replay is called by this word.
_UNREPLAYABLE_PARAMETERS = {
    "structured_outputs": "structured_output",
    "guided_decoding": "structured_output",
    "logits_processors": "logits_processor",
    "logit_bias": "logit_bias",
    "allowed_token_ids": "allowed_token_ids",
    "bad_words": "bad_words",
}


def sampling_of(request: Any) -> Sampling:
    """What decides the tokens of a vLLM request.

    The seed is the user's: MRV1 gives an unseeded request no generator of its own, and the one
    that MRV2 draws never reaches the scheduler.
    """
    params = request.sampling_params
    if params is None:
        return Sampling(unreplayable=("pooling",))
    return Sampling(
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=max(params.top_k, 0),
        min_p=params.min_p,
        seed=params.seed,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        repetition_penalty=params.repetition_penalty,
        max_tokens=params.max_tokens or 0,
        min_tokens=params.min_tokens,
        stop_token_ids=tuple(params.stop_token_ids or ()),
        ignore_eos=params.ignore_eos,
        unreplayable=unreplayable_reasons(request),
        seed_given=params.seed is not None,
        stop=_stop_strings(params.stop),
    )


def unreplayable_reasons(request: Any) -> tuple[str, ...]:
    """One word for each thing that a replay over the API could not repeat, without repeats."""
    params = request.sampling_params
    words = [word for name, word in _UNREPLAYABLE_PARAMETERS.items() if getattr(params, name, None)]
    if getattr(request, "mm_features", None):
        words.append("multimodal")
    if getattr(request, "prompt_embeds", None) is not None:
        words.append("prompt_embeds")
    lora = getattr(request, "lora_request", None)
    if lora is not None:
        words.append(f"lora:{lora.lora_name}")
    return tuple(dict.fromkeys(words))


def salt_digest(request: Any) -> int:
    """XXH3-64 of the request's cache salt; 0 for none."""
    salt = getattr(request, "cache_salt", None)
    return xxhash.xxh3_64_intdigest(salt.encode()) if salt else 0


def _stop_strings(stop: Any) -> tuple[str, ...]:
    if not stop:
        return ()
    return (stop,) if isinstance(stop, str) else tuple(stop)
