"""TorchInductor's kernels as a pass has them: plain `@triton.jit` functions with the helpers that they call."""

import ast
import inspect
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch._inductor.runtime import hints, triton_helpers, triton_heuristics
from triton.runtime.jit import JITFunction

from agent.distill.eager.sum_order import PROCESSORS
from agent.distill.kernels.index_expressions import Unsupported

NAME = "KERNEL_NAME"
"""What a kernel is called until it has a name; the functions of its own have names that begin so."""
HELPER = "helper_"
"""What the names of TorchInductor's helpers begin with in a pass."""
_HEURISTICS = ("pointwise", "reduction", "persistent_reduction")
_WARPS = 16
"""So many warps on each processor of the reference GPU hide the time that loads take."""
_THREAD = 4.0
"""So many elements of a thread are enough for wide loads, and for a program that is worth its start."""
_HELPER = re.compile(r"\btriton_helpers\.(\w+)")


@dataclass(frozen=True)
class KernelCode:
    """A kernel of TorchInductor's. `text` is its source, under `NAME`, with functions of its own.

    `parameters` are those of a launch, tensors first. `configs` are what TorchInductor's rules give to choose from, and
    `meta` says how its grid is made. TorchInductor measures them all; here their order is by what is likely.
    """

    name: str
    text: str
    parameters: tuple[str, ...]
    configs: tuple[Any, ...]
    meta: Mapping[str, Any]

    @property
    def helpers(self) -> set[str]:
        """The helpers that it calls, under TorchInductor's names."""
        return {name.removeprefix(HELPER) for name in re.findall(rf"\b{HELPER}\w+", self.text)}

    def launch(self, name: str, numbers: Mapping[str, int], number: int) -> str:
        """The `Launch` of the kernel under a name, by the configuration of this number among the `ordered`, or the last
        if there are fewer.

        `numbers` are the parameters behind the tensors.
        """
        config = self.ordered(numbers)[min(number, len(self.configs) - 1)]
        sizes, grid = {**numbers, **config.kwargs}, self._grid(config, numbers)
        options = {**sizes, "num_warps": config.num_warps, "num_stages": config.num_stages}
        options["enable_fp_fusion"] = self.meta["triton"]["enable_fp_fusion"]
        given = ", ".join(f"{key}={value}" for key, value in options.items())
        while len(grid) > 1 and grid[-1] == 1:
            grid = grid[:-1]
        return f"Launch({name}, {grid}, {given})"

    def ordered(self, numbers: Mapping[str, int]) -> list[Any]:
        """The configurations: first those whose warps keep the GPU busy, of these first those whose threads have enough
        elements, in TorchInductor's order, then those with most warps that have elements. TorchInductor's first one has
        four warps for 1,024 elements, however few elements there are, or a program for each sum of twelve numbers: 11
        times as long as what it measures to be best (a backward in `benchmarks/passbench/h200_table_290`)."""

        def rank(number: int) -> tuple[float, float, int]:
            config = self.configs[number]
            threads, elements = 32 * config.num_warps, self._elements(config, numbers)
            busy = math.prod(self._grid(config, numbers)) * config.num_warps * min(1.0, elements / threads)
            return -min(busy, _WARPS * PROCESSORS), -min(elements / threads, _THREAD), number

        return [self.configs[n] for n in sorted(range(len(self.configs)), key=rank)]

    def _elements(self, config: Any, numbers: Mapping[str, int]) -> int:
        """How many elements a program of the configuration has at once: a reduction that does not loop has all of a
        row."""
        blocks = {name: size for name, size in config.kwargs.items() if name.endswith("BLOCK")}
        rows = [size for name, size in numbers.items() if re.fullmatch(r"r\d*_?numel", name)]
        whole = rows if not any(name.startswith("R") for name in blocks) else []
        return math.prod([*blocks.values(), *(1 << (size - 1).bit_length() for size in whole)])

    def _grid(self, config: Any, numbers: Mapping[str, int]) -> tuple[int, ...]:
        found = triton_heuristics.GridExpr.from_meta(self.meta["inductor"], config)
        return tuple(map(int, found.eval_slow({**numbers, **config.kwargs})))


def kernel_code(name: str, source: str) -> KernelCode:
    """The kernel in the source of a module that TorchInductor generates for it.

    Raises Unsupported for kernels of other kinds than loops and reductions.
    """
    tree = ast.parse(source)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    function = functions.pop(name)
    heuristic = function.decorator_list[0]
    kind = heuristic.func.attr if isinstance(heuristic, ast.Call) and isinstance(heuristic.func, ast.Attribute) else ""
    if kind not in _HEURISTICS:
        raise Unsupported(f"a kernel of TorchInductor's kind {kind or 'unknown'}")
    names = {"__builtins__": {"set": set}, "__file__": "", **vars(hints)}
    options = {k.arg: eval(ast.unparse(k.value), names) for k in heuristic.keywords}
    configs = getattr(triton_heuristics, kind)(**options, return_configs=True)
    lines = source.splitlines()
    kept = (lines[each.lineno - 1 : each.end_lineno] for each in (*functions.values(), function))
    text = "\n\n\n".join("\n".join(["@triton.jit", *each]) + "\n" for each in kept)
    for number, own in enumerate((name, *functions)):
        text = re.sub(rf"\b{re.escape(own)}\b", f"{NAME}_{number}" if number else NAME, text)
    text = _HELPER.sub(rf"{HELPER}\1", text.replace("tl_math.", "tl.math."))
    given = tuple(a.arg for a in function.args.args if a.annotation is None)
    meta = {"inductor": options["inductor_meta"], "triton": options["triton_meta"]}
    return KernelCode(name, text, given, tuple(configs), meta)


def helper_sources(names: Iterable[str]) -> list[str]:
    """The sources of these helpers, and of those that they call, each before its callers.

    Raises Unsupported where one is no function of TorchInductor's helpers, or needs what a pass does not have.
    """
    found: dict[str, str] = {}
    for name in sorted(names):
        _add_helper(name, found)
    return list(found.values())


def _add_helper(name: str, found: dict[str, str]) -> None:
    if name in found:
        return
    text, called = _helper(name)
    for other in called:
        _add_helper(other, found)
    found[name] = text


@cache
def _helper(name: str) -> tuple[str, tuple[str, ...]]:
    """The source of a helper as a pass has it, and the other helpers that it calls."""
    function = getattr(triton_helpers, name, None)
    if not isinstance(function, JITFunction):
        raise Unsupported(f"TorchInductor's helper {name}")
    tree = ast.parse(inspect.getsource(function.fn))
    renamed = _Renamed()
    definition = renamed.visit(tree).body[0]
    definition.name = _own(name)
    return f"{ast.unparse(definition)}\n", tuple(sorted(renamed.called - {name}))


def _own(name: str) -> str:
    return HELPER + name


class _Renamed(ast.NodeTransformer):
    """Gives helpers the names that they have in a pass, and parameters no types but Triton's constants."""

    def __init__(self) -> None:
        self.called: set[str] = set()

    def visit_arg(self, node: ast.arg) -> ast.AST:
        constant = node.annotation is not None and ast.unparse(node.annotation) == "tl.constexpr"
        return node if constant else ast.arg(node.arg)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        value = vars(triton_helpers).get(node.id)
        if isinstance(value, JITFunction):
            self.called.add(node.id)
            return ast.Name(_own(node.id), node.ctx)
        if node.id == "math":
            return ast.Attribute(ast.Name("tl", ast.Load()), "math", node.ctx)
        return node
