"""Source of a pass module: one pattern, the kernels that replace it, and a wrapper that picks a plan by its inputs.

Inputs of other shapes get a plan if there are kernels for them (`agent.distill.other_inputs`), else the library calls
that eager makes. Many calls on small tensors are replayed as a CUDA graph, which the first call of a shape records.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from agent.distill.kernels.helpers.table import HELPERS, NEEDED
from agent.distill.kernels.host_program import Program, Sketch
from agent.distill.launches.side_by_side import program_of
from agent.distill.lowered_regions import exactly, lowered_anew, lowered_exactly
from agent.distill.other_inputs.general_plans import General, alike, confirmed, general, plans_source
from agent.distill.other_inputs.kept_plans import Layouts
from agent.distill.other_inputs.library_calls import WRITE_INTO, call_lines
from agent.distill.other_inputs.other_dtypes import in_other_dtypes
from agent.distill.other_inputs.other_orders import in_other_orders
from agent.distill.other_inputs.written_for import asks, table
from agent.distill.source.library_function import LibraryFunction
from agent.distill.source.module_kernels import ModuleKernels
from agent.distill.source.pattern_source import function_name, parameter_list, rule_functions, short_names
from agent.distill.source.style import Style
from agent.distill.source.wrapper_source import called_with, wrapper_source
from storage.graph.record import Graph
from storage.graph.render import value_name
from storage.records import Input, dtype_name


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
    kernels = ModuleKernels(graph, style)
    programs = [program_of(case.sketch, style.limits) for case in cases]
    for program in programs:
        for launch in program.launches:
            kernels.add(launch.kernel)
    sized = _of_any_size(cases, programs, style)
    for kernel in (each for one in sized for each in one.kernels):
        kernels.add(kernel, of_variant=False)
    kernels.merge()
    counts = {len(program.launches) for program in programs}
    library = LibraryFunction.of(inner, first.without_plan, _inputs(first), helper)
    libraries, calls_ahead = [library], []
    if first.calls is not None:
        given = dict.fromkeys(inputs for case in cases for inputs in case.given)
        eager = LibraryFunction.of(function, first.graph, next(iter(given)), helper)
        libraries.append(eager)
        calls_ahead = [eager.source, table(given), _calls_ahead(function, first.calls, eager, inner)]
    captures = any(each.captured for each in libraries)
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
        *([WRITE_INTO.lstrip("\n")] if any(each.body.writes for each in libraries) else ()),
        library.source,
        *([plans_source(sized, kernels.called, style.limits)] if sized else ()),
        *wrapper_source(inner, programs, kernels, library, bool(sized)),
        *calls_ahead,
        *(() if helper else rule_functions(first.graph)),
        *(() if helper else (f"def replacement_func():\n    return {function}\n",)),
    ]
    return parts[0] + "\n" + "\n\n".join(parts[1:])


def _calls_ahead(function: str, calls: Graph, eager: LibraryFunction, inner: str) -> str:
    """The wrapper of a region that makes library calls ahead of its kernels, which the wrapper `inner` launches. Inputs
    that these are not for get `eager`."""
    parameters = parameter_list(eager.graph)
    body = "".join(f"    {line}\n" for line in call_lines(calls))
    results = ", ".join(value_name(ref.index, calls.inputs) for ref in calls.output)
    head = f"@torch.fx.wrap\ndef {function}({parameters}):\n    if {asks(parameters)} is None:\n"
    return f"{head}{eager.call}{body}    return {inner}({results})\n"


def _inputs(case: Case) -> list[Input]:
    return [Input("x", "input", dtype_name(dtype), shape, stride) for dtype, shape, stride in case.sketch.key]


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
    return tuple(a.name for a in program.allocations), program.returned, tuple(called_with(program))
