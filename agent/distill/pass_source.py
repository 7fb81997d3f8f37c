"""Source of a pass module: one pattern, the kernels that replace it, and a wrapper that picks a plan by its inputs.

Inputs of other shapes get a plan if there are kernels for them (`agent.distill.other_inputs`), else the library calls
that eager makes. Many calls on small tensors are replayed as a CUDA graph, which the first call of a shape records.
"""

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from agent.distill.eager.op_effects import find_effects
from agent.distill.kernels.emit import KernelSource
from agent.distill.kernels.helpers.table import HELPERS, NEEDED
from agent.distill.kernels.host_program import KernelLaunch, Program, Returned, Sketch
from agent.distill.kernels.launch_configs import LaunchLimits
from agent.distill.kernels.text_template import merge, slot, template
from agent.distill.launches.side_by_side import program_of
from agent.distill.lowered_regions import exactly, lowered_anew, lowered_exactly
from agent.distill.other_inputs.general_plans import General, alike, confirmed, general, plans_source
from agent.distill.other_inputs.kept_plans import Layouts
from agent.distill.other_inputs.library_calls import WRITE_INTO, LibraryBody, call_lines, library_body, replayable
from agent.distill.other_inputs.other_dtypes import in_other_dtypes
from agent.distill.other_inputs.other_orders import in_other_orders
from agent.distill.other_inputs.written_for import asks, table
from agent.distill.pattern_source import function_name, parameter_list, rule_functions, short_names
from agent.distill.rounding import Confirms
from storage.graph.record import Graph
from storage.graph.render import value_name
from storage.records import Input, dtype_name

REPLAYED, SMALL = 4, 1 << 19
"""Library calls of so many launches at least are replayed as a CUDA graph, for inputs of so many elements at most: a
replay costs the host about what one op of eager does, and the device copies inputs and results, for 1 to 3 us and
longer where tensors are large."""


@dataclass(frozen=True)
class Style:
    """How a pass is written. Its launches keep within `limits`.

    `captured`: whole graphs are replaced, launches and library calls alike, and replayed as CUDA graphs
    (`agent.distill.whole_graphs`).

    `general`: sizes that differ between variants are arguments of the kernels, which are compiled once for all
    variants. Otherwise they are constants, and a kernel is compiled for each.

    `own_schedule`: which kernels a region becomes is TorchInductor's choice; else they are as few as can be.

    `branches`: what needs nothing of each other is side by side in these CUDA graphs (`agent.distill.branches`).

    `channels_last`: whole graphs are replaced, with half-type convolutions in channels-last memory
    (`agent.distill.rewrites.channels_last`).

    `split_linears`: kernels add the biases of linears in single precision, whatever else rounds as eager does
    (`agent.distill.rewrites.split_biases`).

    `joined`: regions that need no library call of each other are one.

    `products`: kernels compute small products of matrices, in an order of their own
    (`agent.distill.kernels.formulas.small_products`).

    `for_others`: kernels for inputs that are no variant's are written, too (`agent.distill.other_inputs`), where this
    says that the orders in which they add are eager's. That takes time, and is for the pass that is handed in.

    `compiled`: whole graphs are replaced by TorchInductor's own code in these numerics (`agent.distill.inductor`), ""
    for none; its kernels have the configurations of number `config` among those that TorchInductor chooses from.
    """

    limits: LaunchLimits = field(default_factory=LaunchLimits)
    general: bool = False
    captured: bool = False
    own_schedule: bool = False
    branches: bool = False
    channels_last: bool = False
    split_linears: bool = False
    joined: bool = False
    products: bool = False
    for_others: Confirms | None = None
    compiled: str = ""
    config: int = 0

    @property
    def other_regions(self) -> bool:
        """Whether regions are others than those of the graph as it is."""
        return self.channels_last or self.joined

    @property
    def measured_apart(self) -> bool:
        """Whether no search begins with it: regions, products or code are others than those of the graph as it is."""
        return self.other_regions or self.split_linears or self.products or bool(self.compiled)

    @property
    def whole(self) -> bool:
        """Whether whole graphs are replaced."""
        return self.captured or self.channels_last or bool(self.compiled)


@dataclass(frozen=True)
class Case:
    """A region in one variant: the graph that is the pattern, and what replaces it there.

    Kernels compute `kernels`, which is `graph` unless library calls come ahead of them. These are `calls`, a graph of
    the region's inputs, which returns the kernels' inputs. They are other calls than eager's: all inputs but those of
    `given`, one for each mixture of layouts, get eager's. `any_size` finds out in which layouts it has a kernel for
    other shapes, which takes time.
    """

    graph: Graph
    sketch: Sketch
    kernels: Graph
    calls: Graph | None = None
    given: tuple[tuple[Input, ...], ...] = ()
    any_size: Callable[[], Layouts] = field(default=lambda: Layouts.NONE, compare=False)

    @property
    def without_plan(self) -> Graph:
        """The graph of the library calls that inputs without a plan get. It is eager's: `kernels` may have a linear
        without its bias and an addition. Behind `calls` there are only inputs that these are for."""
        return self.graph if self.calls is None else self.kernels

    @property
    def launches(self) -> int:
        """How many launches the region is."""
        return len(self.sketch.bodies) + (len(self.calls.ops) if self.calls is not None else 0)


def module_source(cases: Sequence[Case], family: str, style: Style, helper: bool = False) -> str:
    """The source of a pass module for regions of one pattern, in variants of one family.

    A `helper` has no pattern: another module calls its wrapper. Its kernels begin in the same lines as those of a
    module that has one: Triton takes them for the same then, and compiles them once.
    """
    first = cases[0]
    cases = [case for case in cases if (case.kernels, case.calls) == (first.kernels, first.calls)]
    function = function_name(first.graph)
    graph, inner = first.kernels, function if first.calls is None else f"{function}_behind"
    kernels = _Kernels(graph, style)
    programs = [program_of(case.sketch, style.limits) for case in cases]
    for program in programs:
        for launch in program.launches:
            kernels.add(launch.kernel)
    sized = _of_any_size(cases, programs, style)
    for kernel in (each for one in sized for each in one.kernels):
        kernels.add(kernel, of_variant=False)
    kernels.merge()
    counts = {len(program.launches) for program in programs}
    known = find_effects(first.without_plan, _inputs(first))
    library = library_body(first.without_plan, known)
    replayed = not helper and sum(known.launches) >= REPLAYED and replayable(first.without_plan, known)
    ahead = _ahead(function, cases, inner, helper) if first.calls is not None else None
    captures = replayed or (ahead is not None and ahead.replayed)
    launching = ["Launch", "LaunchPlan", "PlanTable", *(["captured"] if captures else []), "plan_for"]
    helpers = kernels.helpers.union(*(NEEDED.get(name, ()) for name in kernels.helpers))
    imports = ["import torch", "import triton", "import triton.language as tl", *kernels.imports()]
    count = "one kernel" if counts == {1} else f"{' or '.join(map(str, sorted(counts)))} kernels"
    behind = f" behind {', '.join(short_names(first.calls))}" if first.calls is not None else ""
    parts = [
        f'"""{", ".join(short_names(first.graph, 12))} in {count}{behind}.\n\n'
        f"Written by distill for family {family or 'unnamed'}, "
        f'{len(cases)} {"case" if len(cases) == 1 else "cases"}.\n"""\n',
        "\n".join(imports) + f"\n\nfrom passbench.launch import {', '.join(launching)}\n",
        *(HELPERS[name].lstrip("\n") for name in sorted(helpers)),
        *kernels.sources,
        *([WRITE_INTO.lstrip("\n")] if library.writes or (ahead is not None and ahead.writes) else ()),
        _library(_library_name(inner), graph, library),
        *([plans_source(sized, kernels.called, style.limits)] if sized else ()),
        *_wrapper(inner, graph, programs, kernels, _without_plan(inner, graph, replayed, bool(sized))),
        *(() if ahead is None else ahead.parts),
        *(() if helper else rule_functions(first.graph)),
        *(() if helper else (f"def replacement_func():\n    return {function}\n",)),
    ]
    return parts[0] + "\n" + "\n\n".join(parts[1:])


@dataclass(frozen=True)
class _Ahead:
    """The parts of a module that make library calls ahead of kernels.

    `writes`: they call `write_into`. `replayed`: eager's calls on small inputs are replayed.
    """

    parts: tuple[str, ...]
    writes: bool
    replayed: bool


def _ahead(function: str, cases: Sequence[Case], inner: str, helper: bool) -> _Ahead:
    """The wrapper of a region that makes library calls ahead of its kernels, which `inner` launches."""
    graph, calls = cases[0].graph, cases[0].calls
    given = dict.fromkeys(one for case in cases for one in case.given)
    known = find_effects(graph, next(iter(given)))
    library = library_body(graph, known)
    replayed = not helper and sum(known.launches) >= REPLAYED and replayable(graph, known)
    body = "".join(f"    {line}\n" for line in call_lines(calls))
    results = ", ".join(value_name(ref.index, calls.inputs) for ref in calls.output)
    head = f"@torch.fx.wrap\ndef {function}({parameter_list(graph)}):\n    if {asks(parameter_list(graph))} is None:\n"
    wrapper = f"{head}{_without_plan(function, graph, replayed, False)}{body}    return {inner}({results})\n"
    parts = _library(_library_name(function), graph, library), table(given), wrapper
    return _Ahead(parts, library.writes, replayed)


def _inputs(case: Case) -> list[Input]:
    return [Input("x", "input", dtype_name(dtype), shape, stride) for dtype, shape, stride in case.sketch.key]


def _library_name(function: str) -> str:
    return function.replace("fused_", "library_", 1)


def _library(name: str, graph: Graph, library: LibraryBody) -> str:
    """The function that computes a region of any inputs by library calls."""
    body = "".join(f"    {line}\n" for line in library.lines)
    return f'def {name}({parameter_list(graph)}):\n    """The same for inputs without a plan."""\n{body}'


class _Kernels:
    """The kernels of a module. Kernels that differ only in literals become one kernel with more parameters."""

    def __init__(self, graph: Graph, style: Style) -> None:
        self.graph, self.style = graph, style
        self.templates: dict[str, list[str]] = {}
        self.helpers: set[str] = set()
        self.sources: list[str] = []
        self.calls: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {}
        self.ops: dict[str, tuple[int, ...]] = {}
        self.general: set[str] = set()  # those of other shapes alone

    def add(self, kernel: KernelSource, of_variant: bool = True) -> None:
        key = template(kernel.text)
        if not of_variant and key not in self.templates:
            self.general.add(key)
        texts = self.templates.setdefault(key, [])
        if kernel.text not in texts:
            texts.append(kernel.text)
        self.ops.setdefault(key, kernel.ops)
        self.helpers |= kernel.helpers

    def merge(self) -> None:
        taken: dict[str, int] = {}
        for key, texts in self.templates.items():
            name = self._name(key, taken)
            text, names, rows = merge(texts, _constant_name)
            constants = "".join(f", {n}" if self._is_argument(n) else f", {n}: tl.constexpr" for n in names)
            text = text.replace("KERNEL", name, 1).replace("):\n", f"{constants}):\n", 1)
            self.sources.append(text)
            for original, row in zip(texts, rows, strict=True):
                self.calls[original] = (name, names, row)

    def called(self, kernel: KernelSource) -> tuple[str, dict[str, str]]:
        """The name of a kernel, and the constants that it is launched with."""
        name, constants, row = self.calls[kernel.text]
        return name, dict(zip(constants, row, strict=True))

    def imports(self) -> list[str]:
        """What the kernels need beside Triton's language."""
        used = any("libdevice." in source for source in (*self.sources, *map(HELPERS.get, self.helpers)))
        return ["from triton.language.extra import libdevice"] if used else []

    def _is_argument(self, name: str) -> bool:
        return self.style.general and name.startswith("size_")

    def _name(self, key: str, taken: dict[str, int]) -> str:
        own = (op for op in self.ops[key] if op < len(self.graph.ops))  # behind them: outputs made contiguous
        chosen = Graph(self.graph.inputs, tuple(map(self.graph.ops.__getitem__, own)), None)
        name = "_".join([*short_names(chosen), "kernel", *(["of_any_size"] if key in self.general else [])])
        taken[name] = taken.get(name, 0) + 1
        return name if taken[name] == 1 else f"{name}_{taken[name]}"


def _constant_name(number: int, before: str, literal: str) -> str:
    kind = "dtype" if literal.startswith("tl.") else "size" if re.fullmatch(r"-?\d+", literal) else "number"
    return f"{kind}_{number}"


def _of_any_size(cases: Sequence[Case], programs: Sequence[Program], style: Style) -> list[General]:
    """The kernels for other shapes, in the dtypes of each variant and in others, if `style` asks for them; none unless
    all are called in the same way."""
    calls, graph = set(map(_call, programs)), cases[0].kernels
    if style.for_others is None or len(calls) > 1:
        return []
    made = (general(case.sketch, style.limits, layouts) for case in cases if (layouts := case.any_size()))
    found = alike([one for one in made if one is not None])
    if found and cases[0].calls is None:
        more = in_other_dtypes(found, graph, lowered_exactly, style.limits)
        more += in_other_orders(found, graph, lowered_anew, exactly, style.limits)
        found += [one for one in more if _call(program_of(one.sketch, style.limits)) in calls]
    return confirmed(found, style.for_others)


def _call(program: Program) -> Hashable:
    """What the wrapper gives to the plan of a program, and what it returns."""
    return tuple(a.name for a in program.allocations), program.returned, tuple(_called_with(program))


def _wrapper(function: str, graph: Graph, programs: Sequence[Program], kernels: _Kernels, without: str) -> list[str]:
    """The table of plans and the wrapper. Programs that differ only in literals share a route through the wrapper.

    `without` is what it does for inputs without a plan.
    """
    routes: dict[str, list[tuple[str, str]]] = {}
    for program in programs:
        text = _body(program, kernels)
        entries = routes.setdefault(template(text), [])
        key = _key(program)
        if key not in (k for k, _ in entries):
            entries.append((key, text))
    table, bodies = [], []
    for number, entries in enumerate(routes.values()):
        body, names, rows = merge([text for _, text in entries], _plan_name, always=("    ", " = "))
        unpacked = f"    {', '.join(names)}{',' if len(names) == 1 else ''} = plan\n" if names else ""
        bodies.append(unpacked + body)
        for (key, _), row in zip(entries, rows, strict=True):
            plan = f"({', '.join(row)},)" if row else "()"
            table.append(f"    {key}: {plan if len(routes) == 1 else f'({number}, {plan})'},\n")
    parameters = parameter_list(graph)
    head = (
        f"@torch.fx.wrap\ndef {function}({parameters}):\n    plan = plan_for(PLANS, {parameters})\n"
        f"    if plan is None:\n{without}"
    )
    if len(routes) > 1:
        head += "    route, plan = plan\n"
    text = bodies[-1]
    for number, body in reversed(list(enumerate(bodies[:-1]))):
        text = f"    if route == {number}:\n{_indented(body)}{text}"
    comment = "# dtype, shape and stride of each input -> what the wrapper launches for them\n"
    return [f"{comment}PLANS = PlanTable({{\n{''.join(table)}}})\n", head + text]


def _without_plan(function: str, graph: Graph, replayed: bool, sized: bool) -> str:
    """What a wrapper does for inputs without a plan. `sized`: some get one that is made for their size."""
    library, parameters = _library_name(function), parameter_list(graph)
    text = f"        return {library}({parameters})\n"
    if replayed:
        size = " + ".join(f"{name}.numel()" for name in parameters.split(", "))
        text = f"        if {size} <= {SMALL}:\n            return captured({library}, {parameters})\n{text}"
    if sized:
        text = f"        plan = of_any_size({parameters})\n        if plan is None:\n{_indented(text)}"
    return text


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def _key(program: Program) -> str:
    return "(" + ", ".join(f"{dtype}, {shape}, {stride}" for dtype, shape, stride in program.key) + ")"


def _body(program: Program, kernels: _Kernels) -> str:
    lines = []
    if program.launches:
        made = [a.name for a in program.allocations]
        inputs = _called_with(program)
        plan = _planned(program, inputs, kernels)
        lines.append(f"{', '.join(made)}{' = ' if made else ''}{slot(plan)}({', '.join(inputs)})")
    lines.append(f"return {', '.join(_returned(r) for r in program.returned)}")
    return "".join(f"    {line}\n" for line in lines)


def _called_with(program: Program) -> list[str]:
    """The inputs that its launches get."""
    used = {name for launch in program.launches for name in launch.arguments}
    return [name for n in range(len(program.key)) if (name := f"in_{n}") in used] or ["in_0"]


def _planned(program: Program, inputs: Sequence[str], kernels: _Kernels) -> str:
    """The `LaunchPlan` of a program that is called with these inputs."""
    names = [*inputs, *(a.name for a in program.allocations)]
    parts = [str(len(inputs)), *(f"({a.shape}, {a.stride}, {a.dtype})" for a in program.allocations)]
    for launch in program.launches:
        parts.append(f"({_launch(launch, kernels)}, {tuple([names.index(name) for name in launch.arguments])})")
    return f"LaunchPlan({', '.join(parts)})"


def _launch(launch: KernelLaunch, kernels: _Kernels) -> str:
    name, options = kernels.called(launch.kernel)
    options |= dict(launch.kernel.blocks)
    options["num_warps"] = launch.kernel.tuning.warps
    fixed = [name, f"({launch.kernel.programs},)", *(f"{n}={v}" for n, v in options.items())]
    # Contracted, a rounding between two ops of a half type would be skipped, and eager does not skip it.
    return f"Launch({', '.join(fixed)}, enable_fp_fusion=False)"


def _returned(value: Returned) -> str:
    if value.view is None:
        return value.name
    shape, stride, offset = value.view
    if value.relative:
        return f"{value.name}.as_strided({slot(shape)}, {slot(stride)}, {value.name}.storage_offset() + {slot(offset)})"
    return f"{value.name}.as_strided({slot(shape)}, {slot(stride)}, {slot(offset)})"


def _plan_name(number: int, before: str, literal: str) -> str:
    named = re.search(r"(\w+)=$", before)
    if named:
        kind = named[1].lower()
    elif literal.startswith("LaunchPlan("):
        kind = "launch"
    elif before.endswith("_strided("):
        kind = "shape"
    else:
        kind = "stride" if literal.startswith("(") else "offset"
    return f"{kind}_{number}"
