"""Source of a readable pass module: a pattern, its general kernels, and a function of the host that launches them."""

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from agent.distill.kernels.emit import emit
from agent.distill.kernels.helpers.table import HELPERS
from agent.distill.kernels.host_program import Allocation, Program, Returned, Sketch, dense
from agent.distill.kernels.launch_configs import LaunchLimits, choose, reads_across
from agent.distill.kernels.schedule import KernelBody
from agent.distill.kernels.text_template import template
from agent.distill.lowered_regions import Sketches
from agent.distill.source.pass_source import Case
from agent.distill.source.pattern_source import pattern_source
from agent.readable.kernel_text import MOST_COLUMNS, GeneralKernel, Unreadable, VariantKernels, host_order, one_row
from agent.readable.sizes import HostSizes
from storage.graph.as_json import to_json
from storage.graph.record import Graph, op_name
from storage.records import Input, dtype_name

_LIMITS = LaunchLimits(persistent=MOST_COLUMNS, tiles=False, masked=True, ahead=False)
_IN_STEPS = LaunchLimits(persistent=16, tiles=False, masked=True, ahead=False)
_BLOCK, _WARPS = 1024, 4
_ACROSS, _ALONG = (32, 64), (1, 4096)
"""Rows and columns of a step, where neighbouring rows are neighbours in memory, and where columns are."""
_MOST_KERNELS = 6
_JOINS = ("cat", "concat", "concatenate", "hstack", "vstack")
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class ReadableModule:
    """A module's name, its source, and the facts of a rationale: ops that are replaced, launches in eager and here."""

    name: str
    source: str
    ops: tuple[str, ...]
    eager_launches: int
    launches: int


@dataclass(frozen=True)
class RegionSource:
    """What computes a region: `helpers` by name, `kernels`, and the function of the host that launches them."""

    helpers: dict[str, str]
    kernels: tuple[str, ...]
    host: str
    eager_launches: int
    launches: int


def module_of(cases: Sequence[Case], sketches: Sketches, taken: Collection[str] = ()) -> ReadableModule:
    """The module that replaces a region, given in all variants of one pattern; its name is not among `taken`.

    Raises as `region_source`.
    """
    graph = cases[0].graph
    made = region_source(cases, sketches, "fused")
    parameters = _parameters(graph)
    parts = [
        "import torch\nimport triton\nimport triton.language as tl\n\nfrom passbench.launch import Launch\n",
        pattern_source(graph),
        f"def replacement_args({parameters}):\n    return ({parameters}{',' if graph.inputs == 1 else ''})\n",
        *(made.helpers[name] for name in sorted(made.helpers)),
        *made.kernels,
        made.host,
        replaced_by("fused"),
    ]
    ops = tuple(op_name(op) for op in graph.ops)
    return ReadableModule(free_name("fuse", taken), "\n\n".join(parts), ops, made.eager_launches, made.launches)


def region_source(cases: Sequence[Case], sketches: Sketches, function: str) -> RegionSource:
    """The kernels of a region, given in all variants of one pattern, and the `function` that launches them.

    Raises Unreadable where the region is not pointwise or along rows, and one of
    `agent.distill.lowered_regions.FAILURES` where it cannot be lowered in another dtype.
    """
    chosen = _in_half_types(cases, sketches)
    programs = [_program(sketch) for sketch in chosen]
    if len(programs[0].launches) > _MOST_KERNELS:
        raise Unreadable("too many kernels")
    return _RegionWriter(cases[0].graph, chosen, programs).write(function)


def replaced_by(function: str) -> str:
    """Source of `replacement_func`."""
    return f"def replacement_func():\n    return {function}\n"


def free_name(name: str, taken: Collection[str]) -> str:
    """The name, or with a number behind it the first that is not taken."""
    if name not in taken:
        return name
    return next(f"{name}_{n}" for n in range(2, len(taken) + 3) if f"{name}_{n}" not in taken)


def _parameters(graph: Graph) -> str:
    return ", ".join(f"in_{n}" for n in range(graph.inputs))


def _in_half_types(cases: Sequence[Case], sketches: Sketches) -> list[Sketch]:
    """The region in the shapes that its kernels can be written from, lowered in float16, the first in bfloat16 too.

    A kernel that rounds to a half type where eager does is right in float32 as well, where rounding does nothing. Where
    the kernels of shapes differ, those of a batch of one lack a term, say, and the longest are the general ones. If
    inputs of one variant have several floating dtypes, or the graph names a half type, dtypes stay as they are.
    """
    by_key = {case.sketch.key: case for case in cases}
    floats = [{dtype for dtype, *_ in key if dtype.is_floating_point} for key in by_key]
    if not all(each <= set(_FLOATS) for each in floats):
        raise Unreadable("dtypes that are neither float32 nor a half type")
    if all(len(each) == 1 for each in floats):
        shapes = {tuple((shape, stride) for _, shape, stride in key): case for key, case in by_key.items()}
        general = _general([sketches.of(c.graph, _as(c.sketch.key, torch.float16)) for c in shapes.values()])
        twin = sketches.of(cases[0].graph, _as(general[0].key, torch.bfloat16))
        if _signature(twin) == _signature(general[0]):
            return [general[0], twin, *general[1:]]
    if len({tuple(dtype for dtype, *_ in key) for key in by_key}) > 1:
        raise Unreadable("kernels that differ between dtypes")
    return _general([case.sketch for case in by_key.values()])


def _general(sketches: Sequence[Sketch]) -> list[Sketch]:
    """Those whose kernels are the longest, which differ in numbers alone."""
    groups: dict[tuple, list[Sketch]] = {}
    for sketch in sketches:
        groups.setdefault(_signature(sketch), []).append(sketch)
    return groups[max(groups, key=lambda signature: (len(str(signature)), str(signature)))]


def _signature(sketch: Sketch) -> tuple:
    """What two variants have in common if one kernel can serve both."""
    return tuple((template(one.kernel.text), one.arguments) for one in _program(sketch).launches)


def _program(sketch: Sketch) -> Program:
    """The program of kernels that this author writes: rows that lie across memory are swept in steps."""
    launches = []
    for body in map(_flat, sketch.bodies):
        if body.step is not None:
            raise Unreadable("a kernel that adds in an order of its own")
        limits = _IN_STEPS if body.columns > 1 and reads_across(body) else _LIMITS
        kernel = emit(body, sketch.buffers, choose(body, limits))
        launches.append(sketch.launch(body, kernel))
    return Program(sketch.key, sketch.allocations, tuple(launches), sketch.returned, sketch.replaced)


def _as(key: Sequence[tuple], dtype: torch.dtype) -> list[Input]:
    return [
        Input(f"in_{n}", "input", dtype_name(dtype if own in _FLOATS else own), shape, stride)
        for n, (own, shape, stride) in enumerate(key)
    ]


class _RegionWriter:
    def __init__(self, graph: Graph, sketches: Sequence[Sketch], programs: Sequence[Program]) -> None:
        self.graph, self.sketches, self.programs = graph, sketches, programs
        joins = any(op_name(op).split(".")[-1] in _JOINS or ".cat." in op_name(op) for op in graph.ops)
        self.sizes = HostSizes([[(shape, stride) for _, shape, stride in p.key] for p in programs], joins)
        self.constants = set(re.findall(r"(?<![\w.])\d+(?:\.\d+)?", to_json(graph)))
        self.helpers: dict[bool, set[str]] = {False: set(), True: set()}  # of kernels that sweep, and of others
        self._refuse_writes_to_inputs()
        pairs = list(zip(*(p.key for p in programs), strict=True))
        self.typed = next((n for n, each in enumerate(pairs) if len({dtype for dtype, *_ in each}) > 1), None)
        first = {name for p in programs[:1] for a in p.allocations for name in [a.name]}
        if any({a.name for a in p.allocations} != first for p in programs):
            raise Unreadable("buffers that differ between variants")

    def write(self, function: str) -> RegionSource:
        """The region's source."""
        kernels = [self._kernel(number, function) for number in range(len(self.programs[0].launches))]
        if not kernels:
            raise Unreadable("nothing to launch")
        helpers = {name: one_row(HELPERS[name].strip("\n")) + "\n" for name in sorted(self.helpers[False])}
        if any("keep_dims" in text or "ROWS" in text for text in helpers.values()):
            raise Unreadable("a helper over several rows")
        of_sweeps = {name: HELPERS[name].strip("\n") + "\n" for name in sorted(self.helpers[True])}
        if any(helpers.get(name, text) != text for name, text in of_sweeps.items()):
            raise Unreadable("a helper over one row and over several")
        helpers |= of_sweeps
        host = self._host(function, _parameters(self.graph), kernels)
        texts = tuple(kernel.text for kernel in kernels)
        return RegionSource(helpers, texts, host, self.programs[0].replaced, len(kernels))

    def _refuse_writes_to_inputs(self) -> None:
        for sketch in self.sketches:
            for body in sketch.bodies:
                if any(sketch.names[sketch.buffers[s.buffer].base].startswith("in_") for s in body.stores):
                    raise Unreadable("a region that writes to its inputs")

    def _kernel(self, number: int, function: str) -> GeneralKernel:
        launches = [program.launches[number] for program in self.programs]
        if len({launch.arguments for launch in launches}) > 1:
            raise Unreadable("kernels whose tensors differ between variants")
        bodies = [_flat(sketch.bodies[number]) for sketch in self.sketches]
        sweeps = launches[0].kernel.tuning.loops
        self.helpers[sweeps] |= launches[0].kernel.helpers
        arguments = launches[0].arguments
        suffix = "kernel" if len(self.programs[0].launches) == 1 else f"kernel_{number}"
        made = VariantKernels(
            texts=[launch.kernel.text for launch in launches],
            name=f"{function}_{suffix}",
            pointers=arguments,
            extents=[(body.rows, body.columns) for body in bodies],
            sizes=self.sizes,
            keeps=lambda literal: literal in self.constants,
            typed=next((name for name in sorted(arguments, key=host_order) if self._varies(name)), None),
            lengths={n: [_elements(p, n) for p in self.programs] for n in arguments if not n.startswith("in_")},
            sweeps=sweeps,
        )
        return made.general()

    def _varies(self, name: str) -> bool:
        """Whether a tensor of the host has the dtype of the variant."""
        if name.startswith("in_"):
            number = int(name.removeprefix("in_"))
            return len({program.key[number][0] for program in self.programs}) > 1
        return len({next(a.dtype for a in p.allocations if a.name == name) for p in self.programs}) > 1

    def _host(self, function: str, parameters: str, kernels: Sequence[GeneralKernel]) -> str:
        lines = [self._contiguous(), *self._allocations()]
        tables = []
        for number, (kernel, launch) in enumerate(zip(kernels, self.programs[0].launches, strict=True)):
            table = "_".join(["LAUNCHES", *re.findall(r"\d+", function), *([str(number)] if len(kernels) > 1 else [])])
            tables.append(f"{table} = {{}}\n")
            lines += [f"{name} = {text}" for name, text in kernel.sizes.items()]
            names = list(kernel.sizes)
            kinds = [f"in_{self.typed}.dtype"] if self.typed is not None else []
            lines.append(f"key = ({', '.join([*names, *kinds])}{',' if len(names) + len(kinds) == 1 else ''})")
            lines.append(f"if key not in {table}:")
            name = re.search(r"def (\w+)\(", kernel.text.rpartition("@triton.jit")[2])[1]
            options = [f"{a}={a}" for a in kernel.arguments]
            if kernel.sweeps:
                rows, columns = _ACROSS if reads_across(_flat(self.sketches[0].bodies[number])) else _ALONG
                grid = f"({kernel.rows},)" if rows == 1 else f"(triton.cdiv({kernel.rows}, {rows}),)"
                block, warps = f"ROWS={rows}, COLUMNS={columns}", str(2 * _WARPS)
            elif kernel.columns:
                grid, block = f"({kernel.rows},)", f"COLUMNS=triton.next_power_of_2({kernel.columns})"
                warps = f"{_WARPS} if {kernel.columns} <= 2048 else {4 * _WARPS}"
            else:
                grid, block, warps = f"(triton.cdiv({kernel.rows}, {_BLOCK}),)", f"BLOCK={_BLOCK}", str(_WARPS)
            fixed = ", ".join([name, grid, *options, block, f"num_warps={warps}", "enable_fp_fusion=False"])
            lines.append(f"    {table}[key] = Launch({fixed})")
            lines.append(f"{table}[key]({', '.join(sorted(launch.arguments, key=host_order))})")
        lines.append(f"return {', '.join(self._returned(n) for n in range(len(self.programs[0].returned)))}")
        body = "".join(f"    {line}\n" for line in lines if line)
        return "".join(tables) + f"\n\n@torch.fx.wrap\ndef {function}({parameters}):\n{body}"

    def _contiguous(self) -> str:
        """Inputs that are contiguous in all variants are made so, which costs nothing where they are."""
        numbers = [
            n
            for n in range(self.graph.inputs)
            if all(_contiguous(*program.key[n][1:]) and len(program.key[n][1]) > 1 for program in self.programs)
        ]
        names = ", ".join(f"in_{n}" for n in numbers)
        return f"{names} = {', '.join(f'in_{n}.contiguous()' for n in numbers)}" if numbers else ""

    def _allocations(self) -> list[str]:
        lines = []
        for first in self.programs[0].allocations:
            made = [next(a for a in p.allocations if a.name == first.name) for p in self.programs]
            lines.append(f"{first.name} = {self._allocated(made)}")
        return lines

    def _allocated(self, made: Sequence[Allocation]) -> str:
        for number in range(self.graph.inputs):
            like = [(a.dtype, a.shape, a.stride) == p.key[number] for a, p in zip(made, self.programs, strict=True)]
            if all(like) and all(dense(a.shape, a.stride) for a in made):
                return f"torch.empty_like(in_{number})"
        dtypes = {a.dtype for a in made}
        if len(dtypes) > 1 and self.typed is None:
            raise Unreadable("a result whose dtype no input has")
        dtype = f"in_{self.typed}.dtype" if len(dtypes) > 1 else str(made[0].dtype)
        shape = self.sizes.shape([a.shape for a in made])
        if shape is None:
            raise Unreadable("a result whose shape no input gives")
        if all(_contiguous(a.shape, a.stride) for a in made):
            return f"torch.empty({shape}, dtype={dtype}, device=in_0.device)"
        stride = self.sizes.shape([a.stride for a in made])
        if stride is None or ".shape" in stride.replace(".shape[", ""):
            raise Unreadable("a result whose strides no input gives")
        return f"torch.empty_strided({shape}, {stride}, dtype={dtype}, device=in_0.device)"

    def _returned(self, number: int) -> str:
        values: list[Returned] = [program.returned[number] for program in self.programs]
        name = values[0].name
        if any(v.name != name or (v.view is None) != (values[0].view is None) or v.relative for v in values):
            raise Unreadable("results that differ between variants")
        if values[0].view is None:
            return name
        views = [v.view for v in values]
        shape = self.sizes.shape([shape for shape, _, _ in views])
        if shape is None:
            raise Unreadable("a result that is a view of a shape that no input gives")
        made = [next((a for a in p.allocations if a.name == name), None) for p in self.programs]
        plain = None not in made and all(_contiguous(a.shape, a.stride) for a in made)
        if plain and all(
            _contiguous(*view[:2]) and view[2] == 0 and math.prod(view[0]) == math.prod(one.shape)
            for view, one in zip(views, made, strict=True)
        ):
            return f"{name}.view({shape})"
        strides = [self.sizes.text(numbers) for numbers in zip(*(stride for _, stride, _ in views), strict=True)]
        offset = self.sizes.text(tuple(offset for _, _, offset in views))
        if None in (*strides, offset):
            raise Unreadable("a result that is a view of another")
        stride = f"({', '.join(strides)}{',' if len(strides) == 1 else ''})"
        return f"{name}.as_strided({shape}, {stride}, {offset})"


def _elements(program: Program, name: str) -> int:
    return math.prod(next(a.shape for a in program.allocations if a.name == name))


def _flat(body: KernelBody) -> KernelBody:
    return body.flat if body.flat is not None else body


def _contiguous(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    step = 1
    for size, own in zip(reversed(shape), reversed(stride), strict=True):
        if size != 1 and own != step:
            return False
        step *= size
    return True
