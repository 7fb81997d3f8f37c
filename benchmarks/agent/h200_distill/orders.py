"""Whether `agent.distill.eager.sum_order` knows in what order eager's CUDA kernels add; needs a GPU to say.

    python3 benchmarks/agent/h200_distill/orders.py > OUT

Adds in the order that is expected, with tensor operations, and compares with eager bit by bit, on numbers whose sums
depend on the order. Where that differs, it says what would be needed to find the order: for the first element and each
other one, how many elements are added before the two meet (from the sum of ones with a huge number at one place and its
negative at the other: those that come later count).
"""

import sys
from collections.abc import Iterator
from itertools import groupby, product
from math import prod
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import torch

from agent.distill.eager.emulated_sums import added, rows_of
from agent.distill.eager.sum_order import sum_order

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
ROWS = ((1,), (7,), (64,), (2, 512), (4096,), (40_000,))
COLUMNS = (3, 16, 49, 64, 96, 100, 128, 180, 256, 768, 1024, 2304, 2560, 4096, 6656, 16_384)
OVER = {
    (0, 2, 3): ((2, 256, 56, 56), (2, 2048, 7, 7), (2, 80, 32, 32), (16, 24, 56, 56), (1, 64, 20, 20)),
    (0, 1): ((2, 196, 384), (2, 16, 256, 64), (2, 2304, 768), (1, 120, 96), (4, 300, 250), (8, 50, 37)),
    (0,): ((512, 2304), (64, 96), (1000, 768), (30, 100), (4096, 64)),
    (1,): ((1536, 8, 2304), (64, 3, 56), (2, 196, 384), (16, 512, 7), (8, 128, 30, 30)),
    (2, 3): ((2, 64, 14, 14), (1, 1000, 7, 7)),
    (2, 4): ((2, 300, 16, 1, 4, 2),),
    (3,): ((1024, 16, 300, 4), (2, 32, 64, 128)),
}
"""Dimensions that are reduced, and shapes."""


def cases() -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    for rows, columns in product(ROWS, COLUMNS):
        if prod(rows) * columns <= 2**25:
            yield (*rows, columns), (len(rows),)
    yield from ((shape, dims) for dims, shapes in OVER.items() for shape in shapes)


def meeting(shape: tuple[int, ...], dims: tuple[int, ...], dtype: torch.dtype, device: str) -> list[tuple[int, ...]]:
    """(first, last, elements): for elements `first` to `last` of a row, how many are added before they and element 0
    meet."""
    x = torch.ones(shape, dtype=dtype, device=device)
    plain = rows_of(x, dims)
    length = plain.shape[1]
    found = []
    for start in range(1, length, len(plain)):
        rows = plain.clone()
        count = min(len(plain), length - start)
        here = torch.arange(count, device=device)
        rows[here, 0] = 2.0**40
        rows[here, start + here] = -(2.0**40)
        kept = [d for d in range(len(shape)) if d not in dims]
        back = rows.view([shape[d] for d in (*kept, *dims)])
        filled = torch.empty_like(x)
        filled.permute(*kept, *dims).copy_(back)
        total = filled.sum(dims, dtype=torch.float32).reshape(-1)[:count]
        found += [length - round(t) for t in total.tolist()]
    runs = [(value, [n for n, _ in group]) for value, group in groupby(enumerate(found, 1), key=lambda item: item[1])]
    return [(at[0], at[-1], value) for value, at in runs]


def of(share: torch.Tensor) -> str:
    return "same" if bool(share.all()) else f"{1 - float(share.float().mean()):.4f} differ"


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    print(torch.__version__, torch.cuda.get_device_name() if device == "cuda" else device)
    wrong = 0
    for (shape, dims), dtype in product(cases(), DTYPES):
        x = torch.randn(shape, device=device)
        x = (x * torch.exp2(6 * torch.randn_like(x).clamp(-2, 2))).to(dtype)  # of one size bfloat16's add up exactly
        rows = rows_of(x, dims).float()
        order = sum_order(shape, x.stride(), dims, dtype)
        head = f"sum {shape} over {dims} {str(dtype).removeprefix('torch.')}: {order}"
        if order is None:
            print(head)
            continue
        predicted, exact = added(rows, order), x.sum(dims, dtype=torch.float32).reshape(-1)
        own = x.sum(dims).reshape(-1) == exact.to(dtype)
        share = 1.0 / rows.shape[1]
        mean = x.mean(dims).reshape(-1) == (predicted * torch.tensor(share, device=device)).to(dtype)
        print(f"{head}: {of(predicted == exact)}; own dtype {of(own)}; mean {of(mean)}", flush=True)
        if not torch.equal(predicted, exact) and dtype != torch.float16 and wrong < 40 and rows.shape[1] <= 8192:
            wrong += 1
            print(f"    meeting {meeting(shape, dims, dtype, device)[:60]}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
