"""How fast rows, tokens and tensors are digested, on one CPU thread or on a device.

    python -m benchmarks.digest_rows --device cpu --result digest-rows-cpu

Before anything is timed, the vectorised digests are compared with the stock package's.
`stock_us` is the row digests alone by the `xxhash` package, one call a row (CPU only).
"""

import argparse
import json

import torch
from torch.utils.benchmark import Measurement, Timer

from benchmarks.results_file import write_result
from engine_adapters.digest.rows import fold_tokens, row_digests, token_digests
from engine_adapters.digest.spec import split_layers
from engine_adapters.digest.stock import stock_row_digests
from engine_adapters.digest.tensors import tensor_digest

LAYERS = 30
LAYER_GROUPS = 4
# Bytes per row: SmolLM2-135M in bf16 (2 x 3 heads x 64), Llama-3-8B in bf16, latent of MLA.
ROW_BYTES = (768, 4096, 1152)
TOKENS = (1, 8, 64, 256, 8000)
TENSOR_BYTES = 256 << 20


def measure(statement: str, names: dict[str, object]) -> Measurement:
    timer = Timer(stmt=statement, globals=names, num_threads=1)
    return timer.blocked_autorange(min_run_time=1.0)


def timing(measured: Measurement, size: int) -> dict[str, float]:
    return {
        "median_us": round(measured.median * 1e6, 1),
        "iqr_us": round(measured.iqr * 1e6, 1),
        "gb_per_s": round(size / measured.median / 1e9, 3),
    }


def tokens_case(tokens: int, row_bytes: int, device: torch.device) -> dict[str, object]:
    rows = torch.randint(0, 256, (tokens, LAYERS, row_bytes), dtype=torch.uint8, device=device)
    host = rows.cpu().view(-1, row_bytes)
    if not torch.equal(row_digests(rows).cpu().view(-1), stock_row_digests(host)):
        raise SystemExit(f"digests of {row_bytes}-byte rows differ from the stock package's")
    names = {
        "row_digests": row_digests,
        "fold_tokens": fold_tokens,
        "rows": rows,
        "layers": tuple(range(LAYERS)),
        "shares": split_layers(LAYERS, LAYER_GROUPS),
    }
    found: dict[str, object] = {"tokens": tokens, "layers": LAYERS, "row_bytes": row_bytes}
    found |= timing(measure("fold_tokens(row_digests(rows), layers, shares)", names), rows.numel())
    if device.type == "cpu":
        stock = measure("stock(host)", {"stock": stock_row_digests, "host": host})
        found["stock_us"] = round(stock.median * 1e6, 1)
    else:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        token_digests(rows, tuple(range(LAYERS)), split_layers(LAYERS, LAYER_GROUPS))
        found["scratch_mib"] = round((torch.cuda.max_memory_allocated() - before) / 2**20, 1)
    return found


def tensor_case(kind: str, tensor: torch.Tensor) -> dict[str, object]:
    measured = measure("digest(tensor)", {"digest": tensor_digest, "tensor": tensor})
    size = tensor.numel() * tensor.element_size()
    return {"tensor": kind, "bytes": size, **timing(measured, size)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--result", help="also write benchmarks/results/NAME.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    device = torch.device(arguments.device)
    weights = torch.zeros(TENSOR_BYTES, dtype=torch.uint8, device=device).random_()
    matrix = weights.view(torch.bfloat16).view(-1, 4096)
    figures: dict[str, object] = {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "threads": 1,
        "layer_groups": LAYER_GROUPS,
        "tokens": [tokens_case(t, size, device) for size in ROW_BYTES for t in TOKENS],
        "tensors": [tensor_case("contiguous", weights), tensor_case("transposed", matrix.t())],
    }
    print(json.dumps(figures, indent=1))
    if arguments.result:
        write_result(arguments.result, figures)


if __name__ == "__main__":
    main()
