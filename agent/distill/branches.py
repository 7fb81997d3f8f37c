"""Which launches of a whole graph run side by side in its CUDA graph, and the source that says so.

Ops outside of regions, and regions, are units of work, each in one branch (`passbench.launch.branch`). A unit begins
when what it needs is there. A branch is chosen for each by when its units are expected to be done, longest paths first.
Neighbours of one branch that need nothing of others between them share a function.
"""

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from agent.distill.cost import BANDWIDTH, bytes_of
from agent.distill.eager.op_effects import OpEffects
from agent.distill.other_inputs.library_calls import freed
from agent.distill.regions import Region
from storage.graph.record import Graph, refs

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


@dataclass
class Unit:
    """Lines of a function that launch work, `cost` microseconds of it, and the numbers of the units that they need."""

    lines: list[str]
    cost: float
    needs: frozenset[int]
    branch: int = 0


@dataclass
class Part:
    """Lines that one branch computes by one function."""

    branch: int
    lines: list[str] = field(default_factory=list)


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
        number = max(ready, key=lambda n: (behind[n], -n))
        starts = [
            max((free[b], *(end[n] + (_EDGE if chosen[n].branch != b else 0.0) for n in units[number].needs)))
            for b in range(BRANCHES)
        ]
        branch = starts.index(min(starts))
        begin[number] = starts[branch]
        end[number] = free[branch] = starts[branch] + units[number].cost
        chosen[number] = replace(units[number], branch=branch)
    order = sorted(chosen, key=lambda n: (begin[n], n))
    renumbered = {old: new for new, old in enumerate(order)}
    ordered = [replace(chosen[n], needs=frozenset(renumbered[m] for m in chosen[n].needs)) for n in order]
    total = sum(unit.cost for unit in units)
    return ordered, max(end.values(), default=0.0) / total if total else 1.0


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
        left_open.setdefault(unit.branch, Part(unit.branch)).lines += unit.lines
        if number in needed:
            closed.append(left_open.pop(unit.branch))
    return [*closed, *left_open.values()]


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
        used_later.append(used_later[-1] | _loaded(part.lines))
    for number, (part, used) in enumerate(zip(found, reversed(used_later[:-1]), strict=True)):
        made = _stored(part.lines)
        results = ", ".join(name for name in made if name in used)
        if not results:
            continue
        given_names = [name for name in dict.fromkeys(_names(part.lines, ast.Load)) if name not in made]
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
    the lines of each, what each needs, and what it costs."""

    lines: dict[int | str, list[str]]
    needs: dict[int | str, set[int | str]]
    costs: dict[int | str, float]

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
                units.append(Unit(list(lines), self.costs[step], frozenset(needed)))
            elif needed:
                last = unit_of[step] = max(needed)
                units[last].lines += lines
                units[last].needs |= needed - {last}
            else:
                before += lines
        return units, before
