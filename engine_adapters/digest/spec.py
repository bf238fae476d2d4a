"""The arithmetic of the digest on plain integers: what every implementation must agree with.

`docs/digest.md` is the same in words. Changing anything here makes every recorded digest
incomparable, so it needs a new protocol version.
"""

from engine_adapters.digest.errors import LayersError

MASK64 = (1 << 64) - 1

# Fractions of irrational numbers, times 2^64, rounded down: nothing was tuned in secret.
LAYER_ODD = 0x9E37_79B9_7F4A_7C15  # golden ratio - 1
MIX_FIRST = 0x243F_6A88_85A3_08D3  # pi - 3
MIX_SECOND = 0xB7E1_5162_8AED_2A6B  # e - 2, its last bit set so that it is odd

# Right shifts of mix64, in order. 32 brings the high half down to the low one, so that
# each multiplication carries every input bit to the top.
MIX_SHIFTS = (32, 29, 32)

# Bytes in one row of a tensor digest.
TENSOR_ROW_BYTES = 8192


def signed(value: int) -> int:
    """The int64 with the bit pattern of `value` mod 2^64."""
    value &= MASK64
    return value - (1 << 64) if value >> 63 else value


def mix64(x: int) -> int:
    """A bijection of 64-bit integers that is not linear, neither in addition nor in xor.

    Without it a sum of weighted digests would not see two flips of bit 63, whatever the odd
    weights are: each changes the sum by 2^63.
    """
    x &= MASK64
    x ^= x >> MIX_SHIFTS[0]
    x = x * MIX_FIRST & MASK64
    x ^= x >> MIX_SHIFTS[1]
    x = x * MIX_SECOND & MASK64
    return x ^ x >> MIX_SHIFTS[2]


def fold_row(row_digest: int, layer: int) -> int:
    """What one row adds to its token's digest: `mix64(row_digest + (layer + 1) * LAYER_ODD)`."""
    return mix64(row_digest + (layer + 1) * LAYER_ODD)


def split_layers(num_layers: int, groups: int) -> tuple[int, ...]:
    """How many layers each digest of a token folds, in order of the layers.

    As even as can be, larger groups first. Never more groups than layers: 30 layers in 4
    groups give (8, 8, 7, 7), 2 layers in 4 groups give (1, 1).

    Raises LayersError for a count below 1.
    """
    if num_layers < 1:
        raise LayersError(f"num_layers is {num_layers}; a KV group has at least 1 layer")
    if groups < 1:
        raise LayersError(f"layer_groups is {groups}; set it to 1 or more")
    groups = min(groups, num_layers)
    size, larger = divmod(num_layers, groups)
    return (size + 1,) * larger + (size,) * (groups - larger)


def check_layers(layers: int, digest_layers: tuple[int, ...]) -> None:
    """Raise LayersError unless the digests' shares are positive and add up to the layers."""
    if any(count < 1 for count in digest_layers) or sum(digest_layers) != layers:
        raise LayersError(
            f"digest_layers {digest_layers} add up to {sum(digest_layers)}, but there are "
            f"{layers} layers; make them with split_layers",
        )
