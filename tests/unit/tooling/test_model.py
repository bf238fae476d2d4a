"""The converter's arithmetic: heads come out in the engine's order and padding adds nothing."""

import numpy as np
import pytest

from tools.make_model import Heads, half_split, pad_heads


def test_pairs_become_halves():
    # One head of four rows: GGUF has the pairs (0, 1), (2, 3); the engine wants 0, 2, 1, 3.
    weight = np.arange(8, dtype=np.float32).reshape(4, 2)
    assert half_split(weight, 1).tolist() == weight[[0, 2, 1, 3]].tolist()


def test_heads_stay_apart():
    weight = np.arange(8, dtype=np.float32).reshape(8, 1)
    assert half_split(weight, 2)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


@pytest.mark.parametrize(
    ("kind", "shape", "padded"),
    [
        ("attn_q", (36, 8), (48, 8)),
        ("attn_k", (12, 8), (16, 8)),
        ("attn_v", (12, 8), (16, 8)),
        ("attn_output", (8, 36), (8, 48)),
        ("ffn_up", (20, 8), (20, 8)),
    ],
)
def test_padding_keeps_what_was_there(kind, shape, padded):
    heads = Heads(query=9, key_value=3, size=4, padded=True)
    weight = np.ones(shape, np.float32)
    found = pad_heads(kind, weight, heads)
    assert found.shape == padded
    assert found[: shape[0], : shape[1]].tolist() == weight.tolist()
    assert found.sum() == weight.sum()


def test_no_padding_unless_asked():
    heads = Heads(query=9, key_value=3, size=4, padded=False)
    assert pad_heads("attn_q", np.ones((36, 8)), heads).shape == (36, 8)
