"""Sums of what belongs to a place (`formulas.index_puts`), of which a program looks for what is there.

Eager adds what a place gets one after another. Of single elements a warp adds 32 at a time as long as a place has so
many, each thread one (`indexing_backward_kernel_stride_1` in `Indexing.cu`), and the first thread adds the rest.

Most of what a program would go over belongs to other places and adds zeros, so it first asks of all columns whether
they are the place's, and then loads and adds these alone, from the first to the last. What is added to a sum that began
as +0 is no zero then, or changes nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import sympy
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from agent.distill.kernels.schedule import KernelBody, reachable
from agent.distill.kernels.value_graph import COLUMN, ROW, Value

MEMBERS = "members"
"""The `Value.detail` of a sum of single elements, of which a place may get 32 or more."""
_PLACES = 8
"""Of fewer places each gets so many that looking for them takes longer than adding zeros."""
_ROWS = 128
"""Rows of a program, at most."""
NONE = 2**31 - 1
"""What stands for a column where there is none."""
HELPERS: dict[str, str] = {
    "first_behind": f'''
@triton.jit
def first_behind(here, column, place):
    """The first column behind this one of those that are here; {NONE} if there is none."""
    return tl.min(tl.where(here & (column > place), column, {NONE}), 0)
''',
    "add_rest": '''
@triton.jit
def add_rest(total, lanes, count):
    """(ROWS, 1) and the first `count`, (ROWS, 1), of the elements of (ROWS, 32), one after another."""
    for n in range(0, tl.max(tl.max(count, 1), 0)):
        here = tl.arange(0, 32)[None, :] == n
        total += tl.where(n < count, tl.sum(tl.where(here, lanes, 0.0), 1)[:, None], 0.0)
    return total
''',
}
"""Helper name → source."""


@dataclass(frozen=True)
class PlaceSum:
    """The sums of a kernel, which are all over the same places, and what each adds where a column is that of a row's
    place.

    `here` says that as source, with "{vN}" for each of the values `asked`, N its number. It is the same for `rows`
    neighbouring rows, of which the first one's number is a multiple of that: elements of one slice.
    """

    totals: tuple[Value, ...]
    operands: tuple[Value, ...]
    here: str
    asked: tuple[Value, ...]
    rows: int

    def needed(self, kernel: KernelBody) -> set[int]:
        """The numbers of all values but those that only say what is here."""
        roots = [s.value for s in kernel.stores]
        operands = {total.number: operand for total, operand in zip(self.totals, self.operands, strict=True)}
        found: set[int] = set()
        while roots:
            value = roots.pop()
            if value.number not in found:
                found.add(value.number)
                roots += [operands[value.number]] if value.number in operands else value.args
        return found


@lru_cache(maxsize=1000)
def place_sum(kernel: KernelBody) -> PlaceSum | None:
    """The sums of a kernel that adds in eager's order what belongs to places, if that is all that it goes over."""
    if kernel.step != 1 or kernel.deal is not None:
        return None
    sums = [value for value in kernel.values() if value.op == "reduce"]
    along = any(s.value.by_column or COLUMN in s.index.free_symbols for s in kernel.stores)
    put = all(v.order is not None and v.order.addition.op == "index_put" and v.depth == 1 for v in sums)
    if not sums or along or not put or any(len(value.args) != 1 for value in sums):
        return None
    asked: dict[int, Value] = {}
    here, *others = (_where(value.args[0], asked) for value in sums)
    before, _, behind = sums[0].order.addition.shape
    if not here or any(other != here for other in others):
        return None
    if not all(v.by_column for v in asked.values()) or kernel.rows < _PLACES * before * behind:
        return None
    operands = tuple(_taken(value.args[0]) for value in sums)
    return PlaceSum(tuple(sums), operands, here, tuple(asked.values()), _same_rows(asked.values()))


def start(value: Value, name: str, kernel: KernelBody) -> list[str]:
    """What is kept of "members": the sums of each thread of a warp, what they get next, and how many have got that."""
    kept = (f"{name}_{each} = tl.zeros([ROWS, 32], tl.float32)" for each in ("part", "lanes"))
    return [*kept, f"{name}_count = tl.zeros([ROWS, 1], tl.int32)"]


def step(value: Value, name: str, operands: Sequence[str], kernel: KernelBody, start: str | int) -> list[str]:
    """One more element, if it is `inside`."""
    (operand,) = operands
    return [
        f"{name}_next = tl.where(inside, {operand}, 0.0)",
        f"{name}_lane = inside & (tl.arange(0, 32)[None, :] == {name}_count)",
        f"{name}_lanes = tl.where({name}_lane, {name}_next, {name}_lanes)",
        f"{name}_count += inside.to(tl.int32)",
        f"{name}_part += tl.where({name}_count == 32, {name}_lanes, 0.0)",
        f"{name}_count = tl.where({name}_count == 32, 0, {name}_count)",
    ]


def finish(value: Value, name: str, kernel: KernelBody) -> list[str]:
    """Adds up what was kept; the result is in `name`."""
    return [f"{name} = add_rest(add_halves({name}_part, ROWS, 1, 32), {name}_lanes, {name}_count)"]


def _where(value: Value, asked: dict[int, Value]) -> str | None:
    """Where a value is not zero, as source; "" if that may be anywhere, None if it is nowhere. Notes what is asked."""
    if value.op == "constant" and value.detail == 0:
        return None
    if value.op in ("narrow", "cast"):
        return _where(value.args[0], asked)
    if value.op != "where":
        return ""
    condition, *parts = value.args
    there, elsewhere = (_where(part, asked) for part in parts)
    if there == elsewhere and not there:
        return there
    asked[condition.number] = condition
    ways = []
    for side, way in ((f"{{v{condition.number}}}", there), (f"({{v{condition.number}}} == 0)", elsewhere)):
        if way is not None:
            ways.append(f"({side} & {way})" if way else side)
    return f"({' | '.join(ways)})"


def _taken(value: Value) -> Value:
    """The value where it is not zero."""
    if value.op != "where":
        return value
    _, *parts = value.args
    left = [part for part in parts if part.op != "constant" or part.detail != 0]
    return _taken(left[0]) if len(left) == 1 else value


def _same_rows(asked: list[Value]) -> int:
    """Of how many neighbouring rows, a power of two, these values are the same."""
    indices = [value.index for value in reachable(asked) if value.index is not None]
    shared = 0
    for index in indices:
        parts = index.atoms(FloorDiv, ModularIndexing)
        divided = {part: sympy.Dummy() for part in parts if part.args[0] == ROW and part.args[1].is_Integer}
        if ROW in index.xreplace(divided).free_symbols:
            return 1
        shared = math.gcd(shared, *(int(part.args[1]) for part in divided))
    return min(shared & -shared, _ROWS) if shared else _ROWS
