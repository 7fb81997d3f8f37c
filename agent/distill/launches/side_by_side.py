"""Small kernels that need nothing of each other as parts of one kernel, of which each has some of the programs.

A launch costs the host some microseconds, and the device about one in a CUDA graph, where a kernel waits for the last
program of the one before. Small kernels leave most multiprocessors idle meanwhile. Parts that add in eager's order
have the bits that they have alone, whatever their warps.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from agent.distill.eager.sum_order import PROCESSORS
from agent.distill.kernels.emit import KernelSource, emit
from agent.distill.kernels.host_program import KernelLaunch, Program, Sketch
from agent.distill.kernels.launch_configs import LaunchLimits, Tuning
from agent.distill.kernels.schedule import Buffer, KernelBody
from agent.distill.kernels.text_template import slot

_WARPS = 64 * PROCESSORS
"""Warps of all parts of a kernel, at most: the device holds so many at a time. A kernel of more fills it alone."""
_LETTERS = "abcdefgh"
"""One for each part of a kernel."""
_USUAL = 4
"""A kernel that adds gets up to so many warps, those of another one, so that both are one launch."""
_WIDER = 4
"""It gets at most so many times its own warps."""
_INDENT = "    "
_ASSIGNED = re.compile(r"^\s*(?:for )?(\w+(?:, \w+)*) (?:in |[-+*&|]?= )", re.MULTILINE)
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?!\w|=[^=])")
"""No attribute, and no keyword of a call."""

Piece = tuple[KernelBody, Tuning]


def program_of(sketch: Sketch, limits: LaunchLimits) -> Program:
    """The program of a region with configurations within these limits, small kernels as one launch if they say so."""
    program = sketch.program(limits)
    if not limits.one_launch or len(program.launches) < 2:
        return program
    launches = [_launch(sketch, group) for group in groups(sketch, limits)]
    return replace(program, launches=tuple(launches))


def joins(sketch: Sketch, limits: LaunchLimits) -> bool:
    """Whether some of a region's kernels can be one launch."""
    return len(sketch.bodies) > 1 and len(groups(sketch, limits)) < len(sketch.bodies)


def groups(sketch: Sketch, limits: LaunchLimits) -> list[list[Piece]]:
    """The kernels of a region in the order in which they are launched, those together that are one launch."""
    pieces = sketch.tuned(limits)
    levels = _levels([body for body, _ in pieces], sketch.buffers)
    found, alone = [], {id(body): tuning for body, tuning in pieces}
    for level in range(max(levels) + 1):
        found += _together([piece for piece, own in zip(pieces, levels, strict=True) if own == level])
    return [group if len(group) > 1 else [(body, alone[id(body)]) for body, _ in group] for group in found]


def _levels(bodies: Sequence[KernelBody], buffers: Mapping[str, Buffer]) -> list[int]:
    """How many kernels must run before each, one after another: those of one level need nothing of each other."""
    levels: list[int] = []
    for body in bodies:
        needed = (level for other, level in zip(bodies, levels, strict=False) if _needs(body, other, buffers))
        levels.append(max((level + 1 for level in needed), default=0))
    return levels


def _needs(later: KernelBody, earlier: KernelBody, buffers: Mapping[str, Buffer]) -> bool:
    """Whether a kernel must run behind an earlier one: the scheduler says so, or one reads memory that the other
    writes."""
    reads, writes = zip(*(_memory(body, buffers) for body in (later, earlier)), strict=True)
    return bool(later.behind & earlier.made or reads[0] & writes[1] or writes[0] & reads[1])


def _memory(body: KernelBody, buffers: Mapping[str, Buffer]) -> tuple[set[str], set[str]]:
    """The bases that a kernel reads, and those that it writes."""
    return {buffers[name].base for name in body.loads()}, {buffers[s.buffer].base for s in body.stores}


def _together(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Kernels of one level, in groups of the same number of warps. A kernel that adds may get a few more for that. One
    that adds nothing gets those of the group that leaves most of the device idle."""
    adding = {tuning.warps for body, tuning in pieces if not _is_free(body)}
    usual = max((n for n in adding if n <= _USUAL), default=0)
    alike: dict[int, list[Piece]] = {}
    free: list[Piece] = []
    for body, tuning in pieces:
        wider = tuning.warps < usual <= _WIDER * tuning.warps and not tuning.lanes
        own = replace(tuning, warps=usual) if wider and not _is_free(body) else tuning
        if _all_warps((body, own)) > _WARPS:
            yield [(body, tuning)]
        elif _is_free(body):
            free.append((body, own))
        else:
            alike.setdefault(own.warps, []).append((body, own))
    if free:
        most = max(tuning.warps for _, tuning in free)
        warps = min(alike, key=lambda n: (sum(map(_all_warps, alike[n])), n), default=most)
        alike.setdefault(warps, []).extend((body, _with_warps(tuning, warps)) for body, tuning in free)
    for group in alike.values():
        yield from _that_fit(sorted(group, key=lambda piece: -_length(*piece)))


def _that_fit(group: Sequence[Piece]) -> Iterator[list[Piece]]:
    """The kernels of a group in as many launches as are needed, those first whose programs take long."""
    chosen: list[Piece] = []
    for piece in group:
        if chosen and (sum(map(_all_warps, [*chosen, piece])) > _WARPS or len(chosen) == len(_LETTERS)):
            yield chosen
            chosen = []
        chosen.append(piece)
    yield chosen


def _all_warps(piece: Piece) -> int:
    """The warps of all programs of a kernel."""
    body, tuning = piece
    return tuning.programs(body) * tuning.warps


def _is_free(body: KernelBody) -> bool:
    """Whether a kernel computes the same with any number of warps: it adds nothing."""
    return all(value.op not in ("reduce", "scan") for value in body.values())


def _with_warps(tuning: Tuning, warps: int) -> Tuning:
    """As many elements for each thread of other warps."""
    rows = max(1, tuning.row_block * warps // tuning.warps)
    return replace(tuning, row_block=rows, warps=warps)


def _length(body: KernelBody, tuning: Tuning) -> int:
    """The elements that a program goes over."""
    columns = body.columns if body.flat is None else tuning.column_block
    return tuning.row_block * columns


def _launch(sketch: Sketch, group: Sequence[Piece]) -> KernelLaunch:
    """One launch of all kernels of a group."""
    launches = [sketch.launch(body, emit(body, sketch.buffers, tuning)) for body, tuning in group]
    if len(launches) == 1:
        return launches[0]
    kernel = _joined([launch.kernel for launch in launches])
    touched = dict.fromkeys(kernel.pointers, 0)
    for launch in launches:
        for base, count in zip(launch.kernel.pointers, launch.touched, strict=True):
            touched[base] += count
    return KernelLaunch(kernel, tuple(sketch.names[base] for base in kernel.pointers), tuple(touched.values()))


def _joined(parts: Sequence[KernelSource]) -> KernelSource:
    """One kernel of several."""
    pointers = _pointers(parts)
    lines, blocks, first = ["program = tl.program_id(0)"], [], 0
    for letter, part in zip(_LETTERS, parts, strict=False):
        behind = first + part.programs
        condition = f"if program < {slot(behind)}" if not first else f"elif program < {slot(behind)}"
        lines.append(f"{'else' if part is parts[-1] else condition}:")
        if first:
            lines.append(f"{_INDENT}program_{letter} = program - {slot(first)}")
        program = f"program_{letter}" if first else "program"
        names = dict(zip(_parameters(part), map(pointers.__getitem__, part.pointers), strict=True))
        lines += [_INDENT + line for line in _renamed(part, names, letter, program)]
        blocks += [(f"{name}_{letter.upper()}", size) for name, size in part.blocks]
        first = behind
    parameters = [*pointers.values(), *(f"{name}: tl.constexpr" for name, _ in blocks)]
    head = ["@triton.jit", f"def KERNEL({', '.join(parameters)}):"]
    return KernelSource(
        "\n".join([*head, *(_INDENT + line for line in lines)]) + "\n",
        tuple(pointers),
        first,
        Tuning(1, 1, parts[0].tuning.warps, loops=False),
        frozenset().union(*(part.helpers for part in parts)),
        tuple(sorted({op for part in parts for op in part.ops})),
        tuple(blocks),
        max(part.waits for part in parts),
    )


def _pointers(parts: Sequence[KernelSource]) -> dict[str, str]:
    """What the joined kernel calls each memory that a part reads or writes."""
    called = [(base, name) for part in parts for base, name in zip(part.pointers, _parameters(part), strict=True)]
    read = {base for base, name in called if name.startswith("in_")}
    bases = dict.fromkeys(base for base, _ in called)
    found: dict[str, str] = {}
    for kind in ("in", "out"):
        those = [base for base in bases if (base in read) == (kind == "in")]
        found |= {base: f"{kind}_{number}" for number, base in enumerate(those)}
    return found


def _parameters(part: KernelSource) -> list[str]:
    """The names of a kernel's pointers, in order."""
    head = part.text.splitlines()[1]
    return head.partition("(")[2].split(", ")[: len(part.pointers)]


def _renamed(part: KernelSource, pointers: Mapping[str, str], letter: str, program: str) -> list[str]:
    """The lines of a part, in which what it assigns has names of its own: Triton wants what both ways of a condition
    assign to be alike."""
    body = "\n".join(line.removeprefix(_INDENT) for line in part.text.splitlines()[2:])
    assigned = {name for found in _ASSIGNED.findall(body) for name in found.split(", ")}
    names = {name: f"{name}_{letter}" for name in assigned} | dict(pointers)
    names |= {name: f"{name}_{letter.upper()}" for name, _ in part.blocks}
    renamed = _NAME.sub(lambda found: names.get(found[0], found[0]), body.replace("tl.program_id(0)", program))
    return renamed.splitlines()
