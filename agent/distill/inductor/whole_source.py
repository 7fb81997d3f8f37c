"""The source of a module that replaces a whole graph by TorchInductor's code for it, shape by shape."""

import time
from dataclasses import dataclass
from functools import lru_cache

from agent.distill.inductor.generated_code import generated_code
from agent.distill.inductor.kernel_code import NAME, helper_sources
from agent.distill.inductor.wrapper_code import HostBuffer, HostCode, KernelCall, host_code
from agent.distill.kernels.index_expressions import Unsupported
from agent.distill.other_inputs.written_for import key
from agent.distill.source.pattern_source import short_names
from agent.distill.whole_graphs import WholeGraph, steps
from storage.graph.as_json import from_json, to_json
from storage.graph.render import value_name
from storage.records import Input

STRICT, DEFAULT = "strict", "default"
"""The numerics in which TorchInductor compiles: as eager's, or its own."""
MOST_SHAPES, MOST_SECONDS = 12, 30.0
"""A graph of more shapes, or whose compilation takes longer, in seconds of processor time, is left to other kernels."""


@dataclass(frozen=True)
class CompiledGraph:
    """A whole graph as TorchInductor computes it, in these `numerics`: inputs of each shape, and the host's code."""

    whole: WholeGraph
    numerics: str
    plans: tuple[tuple[tuple[Input, ...], HostCode], ...]

    @property
    def configs(self) -> int:
        """How many configurations the kernel has that has most."""
        kernels = [kernel for _, code in self.plans for kernel in code.kernels]
        return max((len(kernel.configs) for kernel in kernels), default=1)

    @property
    def launches(self) -> int:
        """The kernels and library calls of the shape that has most."""
        return max((code.launches for _, code in self.plans), default=0)


def compiled_graph(whole: WholeGraph, numerics: str) -> CompiledGraph:
    """The graph compiled for all of its shapes. Raises Unsupported where one fails, or there are too many."""
    names = tuple(value_name(value, whole.graph.inputs) for value in whole.region.inputs)
    text, begin = to_json(whole.region.graph), time.thread_time()
    if whole.replaced is not None or len(whole.shapes) > MOST_SHAPES:
        raise Unsupported("more shapes than are compiled")
    plans: dict[tuple[Input, ...], HostCode] = {}
    for inputs in whole.all_inputs():
        if time.thread_time() - begin > MOST_SECONDS:
            raise Unsupported("the time to compile was up")
        code = _host_code(text, inputs, numerics, names)
        if isinstance(code, str):
            raise Unsupported(code)
        plans[inputs] = code
    return CompiledGraph(whole, numerics, tuple(plans.items()))


@lru_cache(maxsize=64)
def _host_code(graph: str, inputs: tuple[Input, ...], numerics: str, names: tuple[str, ...]) -> HostCode | str:
    """The host's code for inputs of these names, or why there is none."""
    try:
        return host_code(generated_code(from_json(graph), inputs, numerics == STRICT), names)
    except Unsupported as error:
        return str(error)


def compiled_source(compiled: CompiledGraph, family: str, config: int, captured: bool) -> str:
    """The source of the module. `config` numbers the kernels' configurations; `captured`: its launches and calls are
    replayed as a CUDA graph. Other inputs than those of its plans get eager's calls."""
    whole = compiled.whole
    names = [value_name(value, whole.graph.inputs) for value in whole.region.inputs]
    given, comma = ", ".join(names), "," if len(names) == 1 else ""
    own = ", ".join(value_name(n, len(names)) for n in range(len(names)))
    function = "compiled_" + "_".join(short_names(whole.region.graph))
    kernels = _ModuleKernels(config)
    functions = [_steps(number, code, kernels) for number, (_, code) in enumerate(compiled.plans)]
    library = "".join(f"    {line}\n" for line in steps(whole, {}))
    keys = "".join(f"    {key(inputs)}: {number},\n" for number, (inputs, _) in enumerate(compiled.plans))
    call = "captured({}, {})" if captured else "{}({})"
    calls = ["{}({})" if inputs in whole.larger else call for inputs, _ in compiled.plans]
    chosen = "".join(
        f"    if plan == {number}:\n        return {each.format(f'steps_{number}', given)}\n"
        for number, each in enumerate(calls)
    )
    how = " as a CUDA graph" if captured else ""
    used = ["Launch", "LaunchPlan", "PlanTable", *(["captured"] if captured else []), "empty_strided", "plan_for"]
    parts = [
        f'"""{", ".join(short_names(whole.region.graph, 12))} by TorchInductor\'s code ({compiled.numerics}){how}.\n\n'
        f'Written by distill for family {family or "unnamed"}, {len(compiled.plans)} shapes.\n"""\n',
        "import torch\nimport triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n\n"
        f"from passbench.launch import {', '.join(used)}\n",
        whole.pattern,
        f"def replacement_args({own}):\n    return ({own}{comma})\n",
        *helper_sources(kernels.helpers),
        *kernels.texts.values(),
        *functions,
        f'def library({given}):\n    """The same for inputs without a plan."""\n{library}',
        f"# dtype, shape and stride of each input -> the number of its steps\nPLANS = PlanTable({{\n{keys}}})\n",
        f"@torch.fx.wrap\ndef {function}({given}):\n    plan = plan_for(PLANS, {given})\n{chosen}"
        f"    return {call.format('library', given)}\n",
        f"def replacement_func():\n    return {function}\n",
    ]
    return parts[0] + "\n" + "\n\n".join(parts[1:])


class _ModuleKernels:
    """The kernels of a module by their text; plans may have some in common."""

    def __init__(self, config: int) -> None:
        self.config = config
        self.texts: dict[str, str] = {}
        self.helpers: set[str] = set()
        self._names: dict[str, str] = {}

    def launch(self, call: KernelCall) -> str:
        """The `Launch` of a call."""
        kernel = call.kernel
        if kernel.text not in self._names:
            base = kernel.name.rstrip("0123456789").rstrip("_")
            name = base if base not in self.texts else f"{base}_{len(self.texts)}"
            self._names[kernel.text] = name
            self.texts[name] = kernel.text.replace(NAME, name)
            self.helpers |= kernel.helpers
        return kernel.launch(self._names[kernel.text], call.numbers, self.config)


def _steps(number: int, code: HostCode, kernels: _ModuleKernels) -> str:
    """The function that computes the graph for one shape, behind what it launches."""
    if code.kernels_alone:
        return _plan(number, code, kernels)
    launches, lines = [], []
    for step in code.steps:
        if isinstance(step, HostBuffer):
            lines.append(f"{step.name} = empty_strided({', '.join(step.layout)}, {code.inputs[0]})")
        elif isinstance(step, KernelCall):
            name = f"LAUNCH_{number}_{len(launches)}"
            launches.append(f"{name} = {kernels.launch(step)}\n")
            lines.append(f"{name}({', '.join(step.tensors)})")
        else:
            lines.append(step)
    lines.append(f"return {', '.join(code.returned)}")
    body = "".join(f"    {line}\n" for line in lines)
    return "".join(launches) + f"{chr(10) * 2 if launches else ''}def steps_{number}({', '.join(code.inputs)}):\n{body}"


def _plan(number: int, code: HostCode, kernels: _ModuleKernels) -> str:
    """The same as one `LaunchPlan`: kernels alone."""
    buffers = [step for step in code.steps if isinstance(step, HostBuffer)]
    calls = [step for step in code.steps if isinstance(step, KernelCall)]
    used = {name for call in calls for name in call.tensors}
    inputs = [name for name in code.inputs if name in used] or [code.inputs[0]]
    place = {name: n for n, name in enumerate([*inputs, *(buffer.name for buffer in buffers)])}
    parts = [str(len(inputs)), *(f"({', '.join(buffer.layout)})" for buffer in buffers)]
    parts += [f"({kernels.launch(call)}, {tuple(place[name] for name in call.tensors)})" for call in calls]
    made = ", ".join(buffer.name for buffer in buffers)
    return (
        f"LAUNCH_{number} = LaunchPlan({', '.join(parts)})\n\n\n"
        f"def steps_{number}({', '.join(code.inputs)}):\n    {made} = LAUNCH_{number}({', '.join(inputs)})\n"
        f"    return {', '.join(code.returned)}\n"
    )
