"""Sums and moments of rows, taken with tensor operations in the order that `sum_order` expects of eager's kernels.

A float32 addition of two tensors is rounded in one way on every device, so the results are what eager's kernels give,
bit for bit, if they add in that order.
"""

from collections.abc import Callable, Sequence
from itertools import product
from math import prod

import torch
import torch.nn.functional as F

from agent.distill.eager.sum_order import Ragged, SumOrder

WARP, WARPS, VECTOR = 32, 4, 4
"""Threads of a warp, warps of a block and elements of a vector in the kernels of norms."""


def rows_of(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    """(R, N): the elements of each sum over `dims` as a row, the last one of `dims` innermost."""
    kept = [d for d in range(x.dim()) if d not in dims]
    return x.permute(*kept, *dims).reshape(-1, prod(x.shape[d] for d in dims))


def fused(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """a * b + c, rounded once, except where rounding to double precision first makes a tie."""
    return (a.double() * b.double() + c.double()).float()


MultiplyAdd = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def added(
    x: torch.Tensor, order: SumOrder, numbers: torch.Tensor | None = None, fma: MultiplyAdd = fused
) -> torch.Tensor:
    """(R, N) float32 → (R,): the sums of the rows, or of their squares; `numbers` says which rows of all these are."""
    if order.kind == "members":
        return _of_a_place(x)
    threads = order.width * order.height
    if isinstance(order.deal, Ragged):
        steps = _ragged(x, order.deal, torch.arange(len(x), device=x.device) if numbers is None else numbers)
    else:
        steps = F.pad(x, (0, -x.shape[1] % order.step))
    if order.vectors:
        steps = steps.view(len(x), -1, threads, order.sums)
    else:
        steps = steps.view(len(x), -1, order.sums, threads).transpose(2, 3)
    total = torch.zeros_like(steps[:, 0])
    for n in range(steps.shape[1]):
        total = fma(steps[:, n], steps[:, n], total) if order.kind == "norm" else total + steps[:, n]
    result, *others = total.unbind(-1)
    for other in others:
        result = result + other
    return _folded(_folded(result.view(len(x), order.height, order.width)))


def _of_a_place(x: torch.Tensor) -> torch.Tensor:
    """(R, N) → (R,): sums of rows of which all elements belong to one place."""
    whole = x.shape[1] // WARP * WARP
    passes = x[:, :whole].view(len(x), -1, WARP)
    total = x.new_zeros(len(x), WARP)
    for n in range(passes.shape[1]):
        total = total + passes[:, n]
    result = _folded(total)
    for rest in x[:, whole:].unbind(1):
        result = result + rest
    return result


def _ragged(x: torch.Tensor, deal: Ragged, numbers: torch.Tensor) -> torch.Tensor:
    """(R, N) → (R, places), zeros where a step has nothing."""
    steps = x.new_zeros(len(x), deal.turns + 2, deal.step)
    for row, steps_of, number in zip(x, steps, numbers.tolist(), strict=True):
        shift = number * deal.length % deal.vector
        ahead = -shift % deal.vector
        whole = (deal.length - ahead) // deal.vector * deal.vector
        steps_of[0, shift * deal.vector : deal.vector**2 : deal.vector][:ahead] = row[:ahead]
        steps_of[1:-1].view(-1)[:whole] = row[ahead : ahead + whole]
        rest = deal.length - ahead - whole
        steps_of[-1, : rest * deal.vector : deal.vector] = row[ahead + whole :]
    return steps.view(len(x), -1)


def _folded(x: torch.Tensor, rounds: torch.dtype | None = None) -> torch.Tensor:
    """Adds the second half of the last dimension, rounded to `rounds`, to the first until one is left."""
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        x = x[..., :half] + x[..., half:].to(rounds or x.dtype).to(x.dtype)
    return x[..., 0]


def _dealt(x: torch.Tensor) -> torch.Tensor:
    """(R, N) → (R, steps, threads, VECTOR), zeros behind the end."""
    threads = WARP * WARPS
    return F.pad(x, (0, -x.shape[1] % (threads * VECTOR))).view(len(x), -1, threads, VECTOR)


def in_turn(x: torch.Tensor, order: SumOrder, by: torch.Tensor | None = None, fma: MultiplyAdd = fused) -> torch.Tensor:
    """(R, N) float32 → (R,): the sums of the rows, or of their products with `by`, in an order of the kind "turns", or
    "rounded"."""
    parts, factors = (_in_steps(each, order) if each is not None else None for each in (x, by))
    total = torch.zeros_like(parts[:, 0])
    for n in range(parts.shape[1]):
        if order.kind == "rounded":
            total = (total + parts[:, n]).to(order.rounds).float()
            continue
        total = total + parts[:, n] if factors is None else fma(parts[:, n], factors[:, n], total)
    by_thread = total.view(len(x), order.height, order.width)
    return _folded(_folded(by_thread, order.rounds), order.rounds)


def _in_steps(x: torch.Tensor, order: SumOrder) -> torch.Tensor:
    """(R, N) → (R, steps, threads): what each thread takes in turn, zeros where it has nothing."""
    threads, deal = order.width * order.height, order.deal
    if deal is None:
        steps = F.pad(x, (0, -x.shape[1] % order.step)).view(len(x), -1, threads, order.sums)
        return steps.transpose(2, 3).reshape(len(x), -1, threads)
    lines = F.pad(x, (0, deal.lines * deal.line - x.shape[1])).view(len(x), deal.lines, deal.line)
    lines = F.pad(lines, (0, deal.turns * deal.across - deal.line, 0, -deal.lines % deal.down))
    dealt = lines.view(len(x), -1, deal.down, deal.turns, deal.across)
    return dealt.transpose(2, 3).reshape(len(x), -1, threads)


def squares(x: torch.Tensor, fma: MultiplyAdd = fused) -> torch.Tensor:
    """(R, N) float32 → (R,): the sums of squares of RMS norm's kernel."""
    parts = _dealt(x)
    total = torch.zeros_like(parts[:, 0, :, 0])
    for n, i in product(range(parts.shape[1]), range(VECTOR)):
        total = fma(parts[:, n, :, i], parts[:, n, :, i], total)
    return _folded(_folded(total.view(len(x), WARPS, WARP)))


def moments(x: torch.Tensor, fma: MultiplyAdd = fused) -> tuple[torch.Tensor, torch.Tensor]:
    """(R, N) float32 → the rows' means and sums of squared distances from them, in the order of layer norm's kernel."""
    parts, present = _dealt(x), _dealt(torch.ones_like(x)) > 0
    mean, distances, count = (torch.zeros_like(parts[:, 0, :, 0]) for _ in range(3))
    for n, i in product(range(parts.shape[1]), range(VECTOR)):
        value, inside = parts[:, n, :, i], present[:, n, :, i]
        apart, more = value - mean, count + 1
        moved = fma(apart, 1.0 / more, mean)
        distances = torch.where(inside, fma(apart, value - moved, distances), distances)
        mean, count = torch.where(inside, moved, mean), torch.where(inside, more, count)
    state = tuple(v.view(len(x), WARPS, WARP) for v in (mean, distances, count))
    for _ in range(2):
        while (length := state[0].shape[-1]) > 1:
            state = _combined(fma, *([v[..., : length // 2], v[..., length // 2 :]] for v in state))
        state = tuple(v[..., 0] for v in state)
    return state[0], state[1]


State = tuple[torch.Tensor, ...]
"""Means, squared distances from them, and counts."""


def _of_threads(x: torch.Tensor, order: SumOrder, fma: MultiplyAdd) -> State:
    """(R, height, width): what each thread finds, with a division for each element."""
    parts, present = _in_steps(x, order), _in_steps(torch.ones_like(x), order) > 0
    mean, distances, count = (torch.zeros_like(parts[:, 0]) for _ in range(3))
    for value, inside in zip(parts.unbind(1), present.unbind(1), strict=True):
        apart, more = value - mean, count + 1
        moved = mean + apart / more
        distances = torch.where(inside, fma(apart, value - moved, distances), distances)
        mean, count = torch.where(inside, moved, mean), torch.where(inside, more, count)
    return tuple(v.view(len(x), order.height, order.width) for v in (mean, distances, count))


def channels(x: torch.Tensor, order: SumOrder, fma: MultiplyAdd = fused) -> tuple[torch.Tensor, torch.Tensor]:
    """As `moments`, in an order of the kind "channels"."""
    state = _of_threads(x, order, fma)
    for _ in range(2):
        while state[0].shape[-1] > 1:
            state = _neighbours(fma, [v[..., ::2] for v in state], [v[..., 1::2] for v in state])
        state = tuple(v[..., 0] for v in state)
    for _ in range(order.idle.bit_length() - 1):
        state = _neighbours(fma, state, [torch.zeros_like(v) for v in state])
    return state[0], state[1]


def _neighbours(fma: MultiplyAdd, a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> State:
    """The moments of two neighbours as those of one; also what has no elements takes part."""
    apart, count = a[0] - b[0], a[2] + b[2]
    share = 1.0 / count.clamp(min=1.0)
    distances = a[1] + fma(share, apart * apart * a[2] * b[2], b[1])
    return share * fma(a[0], a[2], b[0] * b[2]), distances, count


def welford(x: torch.Tensor, order: SumOrder, fma: MultiplyAdd = fused) -> tuple[torch.Tensor, torch.Tensor]:
    """As `moments`, in an order of the kind "welford"."""
    state = _of_threads(x, order, fma)
    for _ in range(2):
        while (length := state[0].shape[-1]) > 1:
            first, second = ([v[..., : length // 2] for v in state], [v[..., length // 2 :] for v in state])
            state = _joined(fma, first, second)
        state = tuple(v[..., 0] for v in state)
    return state[0], state[1]


def _joined(fma: MultiplyAdd, a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Means, squared distances and counts of two threads as those of one; what has no elements changes nothing."""
    apart, count = b[0] - a[0], a[2] + b[2]
    share = b[2] / count
    both = fma(apart, share, a[0]), fma(apart * apart * a[2], share, a[1] + b[1]), count
    return tuple(torch.where(b[2] == 0, x, torch.where(a[2] == 0, y, z)) for x, y, z in zip(a, b, both, strict=True))


def _combined(
    fma: MultiplyAdd, means: list[torch.Tensor], distances: list[torch.Tensor], counts: list[torch.Tensor]
) -> tuple:
    """Two halves' moments as one's."""
    apart, count = means[1] - means[0], counts[0] + counts[1]
    share = torch.where(count > 0, 1.0 / count, 0.0)
    mean = fma(counts[1] * share, means[1], counts[0] * share * means[0])
    spread = fma(counts[0] * share, apart * apart * counts[1], distances[0] + distances[1])
    return mean, spread, count
