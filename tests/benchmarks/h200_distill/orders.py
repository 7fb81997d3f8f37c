"""In what order eager's CUDA kernels add along rows: which of many orders gives the same bits; needs a GPU to say.

    python3 tests/benchmarks/h200_distill/orders.py > OUT

A kernel that adds in eager's order is right at every level, behind cancellations and roundings too. Each line is a
shape and dtype, and the orders without a single differing row. An order: `threads` a row, each of which reads `vector`
neighbours at a time (or elements `threads` apart, "unrolled") into sums of their own; those are added one after
another, then the threads' pairwise, "near" ones first (0 + 1, 2 + 3, …) or "far" ones (0 + n/2, …), or far ones down to
a warp and near ones within it. `rows` is how many threads split a row once more, added first. Layer norm's moments are
Welford's, with or without contraction.
"""

import sys
from collections.abc import Callable, Iterator
from itertools import product

import torch
import torch.nn.functional as F

WARP = 32
ROWS = (64, 512, 4096, 100_000)
COLUMNS = (4, 49, 64, 96, 128, 180, 197, 256, 768, 1024, 2304, 4096, 16_384)
SHAPES = [(r, c) for r in ROWS for c in COLUMNS if r * c <= 2**24]


def partial_sums(x: torch.Tensor, threads: int, vector: int, rows: int, unrolled: bool) -> torch.Tensor:
    """(R, N) float32 → (R, rows, threads): what each thread has of its row; `unrolled` reads are `threads` apart."""
    shape = (vector, rows, threads) if unrolled else (rows, threads, vector)
    padded = F.pad(x, (0, -x.shape[1] % (threads * vector * rows))).view(len(x), -1, *shape)
    total = padded[:, 0].clone()
    for n in range(1, padded.shape[1]):
        total += padded[:, n]
    result, *others = total.unbind(1 if unrolled else -1)
    for other in others:
        result = result + other
    return result


def near(x: torch.Tensor) -> torch.Tensor:
    """Adds along the last dimension, neighbours first."""
    while x.shape[-1] > 1:
        x = x[..., 0::2] + x[..., 1::2]
    return x[..., 0]


def far(x: torch.Tensor, down_to: int = 1) -> torch.Tensor:
    """Adds the second half of the last dimension to the first until `down_to` are left."""
    while x.shape[-1] > down_to:
        half = x.shape[-1] // 2
        x = x[..., :half] + x[..., half:]
    return x[..., 0] if down_to == 1 else x


TREES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "near": near,
    "far": far,
    "far, near": lambda x: near(far(x, min(WARP, x.shape[-1]))),
}


def sums(x: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """All orders, with what the rows of `x` add up to."""
    sizes = product((1, 2, 4, 8, 16, 32, 64, 128, 256, 512), (1, 2, 4, 8), (1, 2, 4, 8, 16), (False, True))
    for threads, vector, rows, unrolled in sizes:
        if threads * rows > 512 or threads * vector * rows > 2 * x.shape[1] or (unrolled and vector == 1):
            continue
        own = partial_sums(x, threads, vector, rows, unrolled)
        for name, tree in TREES.items():
            if name == "far, near" and threads <= WARP:
                continue
            kind = "unrolled" if unrolled else "vector"
            yield f"threads {threads} {kind} {vector} rows {rows} {name}", tree(far(own.mT))


def fma(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """a * b + c, rounded once but for ties that double precision makes."""
    return (a.double() * b.double() + c.double()).float()


def multiply_add(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    return a * b + c


def moments(x: torch.Tensor, vector: int, contract: bool, warps: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and variance of the rows as layer norm's vectorised kernel takes them: Welford a thread, then pairs."""
    add = fma if contract else multiply_add
    threads = WARP * warps
    parts = F.pad(x, (0, -x.shape[1] % (threads * vector))).view(len(x), -1, threads, vector)
    valid = F.pad(torch.ones_like(x[:1]), (0, -x.shape[1] % (threads * vector))).view(1, -1, threads, vector)
    mean, m2, count = (torch.zeros(len(x), threads, device=x.device) for _ in range(3))
    for n, i in product(range(parts.shape[1]), range(vector)):
        value, is_there = parts[:, n, :, i], valid[:, n, :, i].expand(len(x), -1) > 0
        delta = value - mean
        new_count = count + 1
        new_mean = add(delta, 1.0 / new_count, mean)
        new_m2 = add(delta, value - new_mean, m2)
        mean, m2, count = (torch.where(is_there, a, b) for a, b in ((new_mean, mean), (new_m2, m2), (new_count, count)))

    def combine(a: tuple, b: tuple) -> tuple:
        delta = b[0] - a[0]
        total = a[2] + b[2]
        share = torch.where(total > 0, 1.0 / total, 0.0)
        own, other = a[2] * share, b[2] * share
        mixed = add(own, a[0], other * b[0])
        spread = add(delta * delta * a[2], other, a[1] + b[1])
        return tuple(torch.where(total > 0, v, 0.0) for v in (mixed, spread, total))

    state = tuple(v.view(len(x), warps, WARP) for v in (mean, m2, count))
    while state[0].shape[-1] > 1:
        half = state[0].shape[-1] // 2
        state = combine(tuple(v[..., :half] for v in state), tuple(v[..., half:] for v in state))
    state = tuple(v[..., 0] for v in state)
    while state[0].shape[-1] > 1:
        half = state[0].shape[-1] // 2
        state = combine(tuple(v[..., :half] for v in state), tuple(v[..., half:] for v in state))
    return state[0][..., 0], state[1][..., 0] / x.shape[1]


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    for (rows, columns), dtype in product(SHAPES, (torch.float32, torch.float16, torch.bfloat16)):
        x = torch.randn(rows, columns, device=device)
        x = (x * torch.exp2(6 * torch.randn_like(x).clamp(-2, 2))).to(dtype)  # of one size bfloat16's add up exactly
        exact = x.sum(-1, dtype=torch.float32)
        found = [name for name, made in sums(x.float()) if torch.equal(made, exact)]
        own = torch.equal(x.sum(-1), exact.to(dtype))
        print(
            f"sum {rows} x {columns} {dtype}: {len(found)}: {found[:6]}; own dtype is the rounded one: {own}",
            flush=True,
        )
        total = x.float().sum(-1)
        print(f"  of the same in float32: {'same' if torch.equal(total, exact) else 'other'}", flush=True)
        mean = x.mean(-1, dtype=torch.float32)
        ways = {"* 1/N": exact * torch.tensor(1.0 / columns, device=device), "/ N": exact / columns}
        print(f"  mean: {[name for name, way in ways.items() if torch.equal(way, mean)]}", flush=True)
        _, centre, inverse = torch.native_layer_norm(x, (columns,), None, None, 1e-5)
        for vector, contract in product((1, 2, 4, 8), (False, True)):
            mean, variance = moments(x.float(), vector, contract)
            same = (
                (mean == centre.view(-1)).float().mean(),
                (torch.rsqrt(variance + 1e-5) == inverse.view(-1)).float().mean(),
            )
            print(f"  layer norm, vector {vector}, contracted {contract}: {same[0]:.4f} {same[1]:.4f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
