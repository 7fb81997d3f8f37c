"""Whether `agent.order` knows in what order eager's CUDA kernels add; needs a GPU to say.

    python3 tests/benchmarks/h200_distill/orders.py > OUT

Adds in the order that is expected, with tensor operations, and compares with eager bit by bit, on numbers whose sums
depend on the order. Where that differs, it says what would be needed to find the order: for the first element and each
other one, how many elements are added before the two meet (from the sum of ones with a huge number at one place and its
negative at the other: those that come later count). Then layer norm's and RMS norm's moments, in the ways in which a
compiler may contract them.
"""

import sys
from collections.abc import Iterator
from itertools import groupby, product
from math import prod
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import torch
import torch.nn.functional as F

from agent.order import Order, sum_order

WARP = 32
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


def rows_of(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    """(R, N): the elements of each sum as a row."""
    kept = [d for d in range(x.dim()) if d not in dims]
    return x.permute(*kept, *dims).reshape(-1, prod(x.shape[d] for d in dims))


def added(x: torch.Tensor, order: Order) -> torch.Tensor:
    """(R, N) float32 → (R,): the sums of the rows."""
    threads = order.width * order.height
    steps = F.pad(x, (0, -x.shape[1] % order.step))
    if order.vectors:
        steps = steps.view(len(x), -1, threads, order.sums)
    else:
        steps = steps.view(len(x), -1, order.sums, threads).transpose(2, 3)
    total = torch.zeros_like(steps[:, 0])
    for n in range(steps.shape[1]):
        total = total + steps[:, n]
    result, *others = total.unbind(-1)
    for other in others:
        result = result + other
    return far(far(result.view(len(x), order.height, order.width)))


def far(x: torch.Tensor) -> torch.Tensor:
    """Adds the second half of the last dimension to the first until one is left."""
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        x = x[..., :half] + x[..., half:]
    return x[..., 0]


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


def fma(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """a * b + c, rounded once but for ties that double precision makes."""
    return (a.double() * b.double() + c.double()).float()


def multiply_add(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    return a * b + c


def moments(
    x: torch.Tensor, contract: bool, plain: bool, vector: int = 4, warps: int = 4
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and sum of squared distances of the rows, (R, N) float32, as layer norm's vectorised kernel takes them:
    Welford's way a thread, then pairs. `plain` is RMS norm's sum of squares."""
    add = fma if contract else multiply_add
    threads = WARP * warps
    parts = F.pad(x, (0, -x.shape[1] % (threads * vector))).view(len(x), -1, threads, vector)
    valid = F.pad(torch.ones_like(x[:1]), (0, -x.shape[1] % (threads * vector))).view(1, -1, threads, vector)
    mean, m2, count = (torch.zeros(len(x), threads, device=x.device) for _ in range(3))
    for n, i in product(range(parts.shape[1]), range(vector)):
        value, is_there = parts[:, n, :, i], valid[:, n, :, i].expand(len(x), -1) > 0
        if plain:
            m2 = torch.where(is_there, add(value, value, m2), m2)
            continue
        delta = value - mean
        new_count = count + 1
        new_mean = add(delta, 1.0 / new_count, mean)
        new_m2 = add(delta, value - new_mean, m2)
        mean, m2, count = (torch.where(is_there, a, b) for a, b in ((new_mean, mean), (new_m2, m2), (new_count, count)))

    def combine(a: tuple, b: tuple) -> tuple:
        if plain:
            return a[0], a[1] + b[1], a[2]
        delta = b[0] - a[0]
        total = a[2] + b[2]
        share = torch.where(total > 0, 1.0 / total, 0.0)
        own, other = a[2] * share, b[2] * share
        mixed = add(other, b[0], own * a[0])
        spread = add(own, delta * delta * b[2], a[1] + b[1])
        return tuple(torch.where(total > 0, v, 0.0) for v in (mixed, spread, total))

    state = tuple(v.view(len(x), warps, WARP) for v in (mean, m2, count))
    for _ in range(2):
        while state[0].shape[-1] > 1:
            half = state[0].shape[-1] // 2
            state = combine(tuple(v[..., :half] for v in state), tuple(v[..., half:] for v in state))
        state = tuple(v[..., 0] for v in state)
    return state[0], state[1]


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
    for columns, dtype in product((96, 180, 256, 768, 1024, 4096), DTYPES):
        x = (torch.randn(1024, columns, device=device) * 3 + 1).to(dtype)
        _, centre, inverse = torch.native_layer_norm(x, (columns,), None, None, 1e-5)
        root = torch.ops.aten._fused_rms_norm(x, (columns,), None, 1e-5)[1]
        length = torch.tensor(float(columns), device=device)  # eager multiplies by a number's reciprocal
        for contract in (False, True):
            mean, m2 = moments(x.float(), contract, False)
            squares = moments(x.float(), contract, True)[1]
            same = [
                of(mean == centre.view(-1)),
                of(torch.rsqrt(m2 / length + 1e-5) == inverse.view(-1)),
                of(torch.rsqrt(squares / length + 1e-5) == root.view(-1)),
            ]
            ways = f"norm {columns} {dtype} contracted {contract}"
            print(f"{ways}: mean {same[0]}; root {same[1]}; RMS {same[2]}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
