"""Constants of XXH3-64, as its specification gives them, and the default secret cut in words."""

import functools

import torch

from engine_adapters.digest.spec import signed

PRIME32_1 = 0x9E37_79B1
PRIME32_2 = 0x85EB_CA77
PRIME32_3 = 0xC2B2_AE3D
PRIME64_1 = 0x9E37_79B1_85EB_CA87
PRIME64_2 = 0xC2B2_AE3D_27D4_EB4F
PRIME64_3 = 0x1656_67B1_9E37_79F9
PRIME64_4 = 0x85EB_CA77_C2B2_AE63
PRIME64_5 = 0x27D4_EB2F_1656_67C5
PRIME_MX1 = 0x1656_6791_9E37_79F9
PRIME_MX2 = 0x9FB2_1C65_1E98_DF25

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e",
)


def secret_word(offset: int) -> int:
    """The 8 bytes of the secret at `offset`, little-endian, unsigned."""
    return int.from_bytes(SECRET[offset : offset + 8], "little")


@functools.lru_cache(maxsize=1024)
def constants(values: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """int64[len(values)] on the device, made once and then shared: never write into it."""
    return torch.tensor([signed(value) for value in values], dtype=torch.int64, device=device)


@functools.lru_cache(maxsize=256)
def secret_words(offsets: tuple[int, ...], count: int, device: torch.device) -> torch.Tensor:
    """int64[len(offsets), count]: from each offset of the secret `count` words. Shared as above."""
    words = tuple(secret_word(start + 8 * i) for start in offsets for i in range(count))
    return constants(words, device).view(len(offsets), count)
