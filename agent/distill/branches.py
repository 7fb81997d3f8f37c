"""Which launches of a whole graph run side by side in its CUDA graph, and the source that says so.

Ops outside of regions, and regions, are units of work, each in one branch (`passbench.launch.branch`). A unit begins
when what it needs is there. A branch is chosen for each by when its units are expected to be done, longest paths first.
Neighbours of one branch that need nothing of others between them share a function.

An op that adds by atomic operations, such as the gradient of a convolution's weights, adds in the order in which its
blocks come to run. Alone on the device that order is nearly always the same, as in eager; beside other work it need not
be. So nothing runs beside such an op.
"""

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from agent.distill.cost import BANDWIDTH, bytes_of
from agent.distill.eager.op_effects import OpEffects
from agent.distill.other_inputs.library_calls import freed
from agent.distill.regions import Region
from storage.graph.record import Graph, Op, refs

BRANCHES = 3
"""So many branches are tried."""
WORTH_BRANCHES = 0.95
"""Branches are worth measuring where they are expected to take at most this share of the time in order."""
_LAUNCH, _EDGE = 2.0, 2.0
"""Microseconds of a launch that computes next to nothing, and of waiting for another branch."""
_FLOPS = {"float32": 4e7, "float64": 2e7}
"""Floating operations a microsecond by dtype, and of half types."""
_HALF_FLOPS = 2e8
_CONVOLUTION_BACKWARD, _MASK = "torch.ops.aten.convolution_backward.default", 10
"""An op with up to three results, and which of its arguments says which of them are wanted."""
_OF_WEIGHTS = 1
"""Which of them is the gradient of the weights."""


_ATOMIC = frozenset(
    "index_add scatter_add scatter_reduce index_reduce put bincount histc cumsum cumprod logcumsumexp "
    "grid_sampler_2d_backward grid_sampler_3d_backward upsample_linear1d_backward upsample_bilinear2d_backward "
    "upsample_bicubic2d_backward upsample_trilinear3d_backward _upsample_bilinear2d_aa_backward "
    "_upsample_bicubic2d_aa_backward _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward "
    "adaptive_max_pool2d_backward adaptive_max_pool3d_backward avg_pool3d_backward max_pool2d_with_indices_backward "
    "max_pool3d_with_indices_backward fractional_max_pool2d_backward fractional_max_pool3d_backward "
    "reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward replication_pad1d_backward "
    "replication_pad2d_backward replication_pad3d_backward nll_loss2d_forward nll_loss2d_backward "
    "_scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention_backward "
    "_scaled_dot_product_cudnn_attention_backward".split()
)
"""Ops that torch's notes on determinism name, where no option asks for deterministic ones."""


@dataclass
class Unit:
    """Lines of a function that launch work, `cost` microseconds of it, and the numbers of the units that they need.
    Beside what is `alone` nothing may run."""

    lines: list[str]
    cost: float
    needs: frozenset[int]
    branch: int = 0
    alone: bool = False


@dataclass
class Part:
    """Lines that one branch computes by one function, behind what has made the values `behind`."""

    branch: int
    lines: list[str] = field(default_factory=list)
    behind: list[str] = field(default_factory=list)


def op_cost(graph: Graph, known: OpEffects, number: int) -> float:
    """Microseconds that an op is expected to take on the device; 0.0 if it launches nothing."""
    op, result = graph.ops[number], graph.inputs + number
    if not known.launches[number]:
        return 0.0
    rate = _FLOPS.get(getattr(known.values[result], "dtype", ""), _HALF_FLOPS)
    moved = bytes_of(known, {result, *(ref.index for ref in refs((op.args, op.kwargs)))})
    return known.launches[number] * _LAUNCH + max(moved / BANDWIDTH, known.flops[number] / rate)


def region_cost(region: Region, known: OpEffects) -> float:
    """The same of a region in kernels; it may have convolutions whose biases they add."""
    flops = sum(known.flops[op] for op in region.ops)
    return _LAUNCH + bytes_of(known, (*region.inputs, *region.outputs)) / BANDWIDTH + flops / _HALF_FLOPS


def is_divided(graph: Graph) -> bool:
    """Whether `WholeSteps.divide` may make several calls of one of eager's."""
    return any(op.target == _CONVOLUTION_BACKWARD and sum(op.args[_MASK]) > 1 for op in graph.ops)


def is_atomic(op: Op) -> bool:
    """Whether an op adds in an order that depends on when its blocks run."""
    if op.target == _CONVOLUTION_BACKWARD:
        return len(op.args) <= _MASK or bool(op.args[_MASK][_OF_WEIGHTS])
    parts = op.target.removeprefix("torch.ops.aten.").split(".")
    name = parts[0] if op.target.startswith("torch.ops.aten.") else parts[-1]
    return name.rstrip("_") in _ATOMIC


def spread_out(units: Sequence[Unit]) -> tuple[list[Unit], float]:
    """The units, which come in an order in which they could run, with a branch for each, in the order in which they are
    expected to begin; and what they are expected to take as a share of their time one after another."""
    behind = [0.0] * len(units)  # what is left to do from the beginning of a unit on
    for number in reversed(range(len(units))):
        behind[number] += units[number].cost
        for needed in units[number].needs:
            behind[needed] = max(behind[needed], behind[number])
    chosen: dict[int, Unit] = {}
    begin, end, free = {}, {}, [0.0] * BRANCHES
    while len(chosen) < len(units):
        ready = [n for n, unit in enumerate(units) if n not in chosen and unit.needs <= chosen.keys()]
        number = max(ready, key=lambda n: (not units[n].alone, behind[n], -n))  # one that is alone cuts all branches
        alone = units[number].alone
        needed = chosen if alone else units[number].needs
        starts = [
            max((free[b], *(end[n] + (_EDGE if chosen[n].branch != b else 0.0) for n in needed)))
            for b in range(BRANCHES)
        ]
        branch = starts.index(min(starts))
        begin[number] = starts[branch]
        end[number] = free[branch] = starts[branch] + units[number].cost
        if alone:
            free = [end[number] + (_EDGE if b != branch else 0.0) for b in range(BRANCHES)]
        chosen[number] = replace(units[number], branch=branch)
    order = sorted(chosen, key=lambda n: (begin[n], n))
    renumbered = {old: new for new, old in enumerate(order)}
    ordered = [replace(chosen[n], needs=frozenset(renumbered[m] for m in chosen[n].needs)) for n in order]
    ordered = _with_nothing_beside(ordered)
    total = sum(unit.cost for unit in units)
    return ordered, max(end.values(), default=0.0) / total if total else 1.0


def _with_nothing_beside(units: Sequence[Unit]) -> list[Unit]:
    """The units, in the order in which they begin, such that one that is alone needs the last one of each other branch,
    and the next one of each other branch needs it."""
    last: dict[int, int] = {}
    alone: dict[int, int] = {}  # by branch, what the next unit there waits for
    found = []
    for number, unit in enumerate(units):
        waits = {n for branch, n in last.items() if branch != unit.branch} if unit.alone else set()
        if unit.branch in alone:
            waits.add(alone.pop(unit.branch))
        found.append(replace(unit, needs=unit.needs | waits))
        last[unit.branch] = number
        if unit.alone:
            alone = {branch: number for branch in range(BRANCHES) if branch != unit.branch}
    return found


def parts(units: Sequence[Unit]) -> list[Part]:
    """The units' lines by function, in an order in which they can be called.

    A part ends with a unit that another branch needs: this one need not wait for more. It begins with the only unit
    that needs other branches: what is before that need not wait.
    """
    needed = {n for unit in units for n in unit.needs if units[n].branch != unit.branch}
    closed: list[Part] = []
    left_open: dict[int, Part] = {}  # by branch
    for number, unit in enumerate(units):
        waits = any(units[n].branch != unit.branch for n in unit.needs)
        if waits and unit.branch in left_open:
            closed.append(left_open.pop(unit.branch))
        part = left_open.setdefault(unit.branch, Part(unit.branch))
        part.lines += unit.lines
        part.behind += [_last_made(units[n]) for n in sorted(unit.needs) if _only_waits(unit, units[n])]
        if number in needed:
            closed.append(left_open.pop(unit.branch))
    return [*closed, *left_open.values()]


def _only_waits(unit: Unit, needed: Unit) -> bool:
    """Whether a unit needs one of another branch of which it reads nothing."""
    return needed.branch != unit.branch and not _stored(needed.lines).keys() & _loaded(unit.lines)


def _last_made(unit: Unit) -> str:
    return list(_stored(unit.lines))[-1]


def branched(
    units: Sequence[Unit], before: Sequence[str], returned: str, tuples: Collection[str] = ()
) -> tuple[list[str], list[str]] | None:
    """The functions of all parts, and the lines that call them behind the lines `before`, and return `returned`.

    None where a part would read one of the values `tuples` of another: branches exchange tensors alone.
    """
    functions, lines = [], list(before)
    found = parts(units)
    used_later = [_loaded([f"return {returned}"])]
    for part in reversed(found):
        used_later.append(used_later[-1] | _loaded(part.lines) | set(part.behind))
    for number, (part, used) in enumerate(zip(found, reversed(used_later[:-1]), strict=True)):
        made = _stored(part.lines)
        results = ", ".join(name for name in made if name in used)
        if not results:
            continue
        read = dict.fromkeys((*_names(part.lines, ast.Load), *part.behind))
        given_names = [name for name in read if name not in made]
        if any(name in tuples for name in given_names):
            return None
        given = ", ".join(given_names)
        body = "".join(f"    {line}\n" for line in freed([*part.lines, f"return {results}"]))
        functions.append(f"def part_{number}({given}):\n{body}")
        lines.append(f"{results} = branch({', '.join((str(part.branch), f'part_{number}', *given_names))})")
    return functions, [*lines, f"return {returned}"]


def _names(lines: Sequence[str], context: type[ast.expr_context]) -> Iterator[str]:
    """Names of values that the lines load, or store, in order."""
    tree = ast.parse("\n".join(line.removeprefix("return ") for line in lines))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, context) and node.id.startswith(("in_", "tmp_")):
            yield node.id


def _loaded(lines: Sequence[str]) -> frozenset[str]:
    return frozenset(_names(lines, ast.Load))


def _stored(lines: Sequence[str]) -> dict[str, None]:
    return dict.fromkeys(_names(lines, ast.Store))


@dataclass
class WholeSteps:
    """The steps of a whole graph, ops by their numbers and regions by their names, in an order in which they could run:
    the lines of each, what each needs, what it costs, and which are to be alone."""

    lines: dict[int | str, list[str]]
    needs: dict[int | str, set[int | str]]
    costs: dict[int | str, float]
    alone: set[int | str] = field(default_factory=set)

    def divide(self, graph: Graph) -> None:
        """Makes a step of each gradient that a convolution's backward computes: eager computes one after another."""
        for number, op in enumerate(graph.ops):
            mask = op.args[-1] if op.args and number in self.lines else ()
            if op.target != _CONVOLUTION_BACKWARD or len(op.args) != _MASK + 1 or sum(mask) < 2:
                continue
            (line,) = self.lines[number]
            name, _, call = line.partition(" = ")
            taken = {
                step: self.lines[step][0].rpartition(f" = {name}[")
                for step, needs in self.needs.items()
                if number in needs
            }
            written = f"{list(mask)!r})"
            if not call.endswith(written) or not all(item and rest[1:] == "]" for _, item, rest in taken.values()):
                continue
            steps: dict[int | str, list[str]] = {}
            for which in (n for n in range(3) if mask[n]):
                step = f"{number} {which}"
                only = [n == which for n in range(3)]
                steps[step] = [f"{name}_{which} = {call.removesuffix(written)}{only!r})"]
                self.needs[step], self.costs[step] = self.needs[number], self.costs[number] / sum(mask)
                if number in self.alone and which == _OF_WEIGHTS:
                    self.alone.add(step)
            for user, (target, _, item) in taken.items():
                which = item[0]
                self.lines[user] = [f"{target} = {name}_{which}[{which}]"]
                self.needs[user] = self.needs[user] - {number} | {f"{number} {which}"}
            self.lines = {
                new: lines
                for step, kept in self.lines.items()
                for new, lines in (steps if step == number else {step: kept}).items()
            }

    def units(self) -> tuple[list[Unit], list[str]]:
        """The steps as units, and the lines of those that launch nothing and need no unit. Other steps that launch
        nothing belong to the last unit that they need."""
        units: list[Unit] = []
        unit_of: dict[int | str, int] = {}
        before: list[str] = []
        for step, lines in self.lines.items():
            needed = {unit_of[n] for n in self.needs[step] if n in unit_of}
            if self.costs[step]:
                unit_of[step] = len(units)
                units.append(Unit(list(lines), self.costs[step], frozenset(needed), alone=step in self.alone))
            elif needed:
                last = unit_of[step] = max(needed)
                units[last].lines += lines
                units[last].needs |= needed - {last}
            else:
                before += lines
        return units, before
