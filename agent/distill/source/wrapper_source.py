"""Source of a module's wrapper: the table of plans, a call of the plan that fits, and what inputs without one get."""

import re
from collections.abc import Sequence

from agent.distill.kernels.host_program import KernelLaunch, Program, Returned
from agent.distill.kernels.text_template import merge, slot, template
from agent.distill.source.library_function import LibraryFunction
from agent.distill.source.module_kernels import ModuleKernels
from agent.distill.source.pattern_source import parameter_list


def wrapper_source(
    name: str, programs: Sequence[Program], kernels: ModuleKernels, library: LibraryFunction, sized: bool
) -> list[str]:
    """The table of plans, and the wrapper of this name. Programs that differ only in literals share a route through it.

    Inputs without a plan get `library`. `sized`: some get a plan that is made for their size.
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
    parameters = parameter_list(kernels.graph)
    without = library.call
    if sized:
        without = f"        plan = of_any_size({parameters})\n        if plan is None:\n{_indented(without)}"
    head = (
        f"@torch.fx.wrap\ndef {name}({parameters}):\n    plan = plan_for(PLANS, {parameters})\n"
        f"    if plan is None:\n{without}"
    )
    if len(routes) > 1:
        head += "    route, plan = plan\n"
    text = bodies[-1]
    for number, body in reversed(list(enumerate(bodies[:-1]))):
        text = f"    if route == {number}:\n{_indented(body)}{text}"
    comment = "# dtype, shape and stride of each input -> what the wrapper launches for them\n"
    return [f"{comment}PLANS = PlanTable({{\n{''.join(table)}}})\n", head + text]


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def _key(program: Program) -> str:
    return "(" + ", ".join(f"{dtype}, {shape}, {stride}" for dtype, shape, stride in program.key) + ")"


def _body(program: Program, kernels: ModuleKernels) -> str:
    lines = []
    if program.launches:
        made = [a.name for a in program.allocations]
        inputs = called_with(program)
        plan = _planned(program, inputs, kernels)
        lines.append(f"{', '.join(made)}{' = ' if made else ''}{slot(plan)}({', '.join(inputs)})")
    lines.append(f"return {', '.join(_returned(r) for r in program.returned)}")
    return "".join(f"    {line}\n" for line in lines)


def called_with(program: Program) -> list[str]:
    """The inputs that its launches get."""
    used = {name for launch in program.launches for name in launch.arguments}
    return [name for n in range(len(program.key)) if (name := f"in_{n}") in used] or ["in_0"]


def _planned(program: Program, inputs: Sequence[str], kernels: ModuleKernels) -> str:
    """The `LaunchPlan` of a program that is called with these inputs."""
    names = [*inputs, *(a.name for a in program.allocations)]
    parts = [str(len(inputs)), *(f"({a.shape}, {a.stride}, {a.dtype})" for a in program.allocations)]
    for launch in program.launches:
        parts.append(f"({_launch(launch, kernels)}, {tuple([names.index(name) for name in launch.arguments])})")
    return f"LaunchPlan({', '.join(parts)})"


def _launch(launch: KernelLaunch, kernels: ModuleKernels) -> str:
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
