"""Which passes that a check of few draws found right may be wrong in one draw of hundreds, by what their text does.

`readable` computes in eager's order and rounds as it does, and most kernels have eager's bits: all 246 float32
demonstrations with `rsqrt`, `fma`, `sin` or `cos` alone have. Sums, `exp`, `erf` and `log` have not. There a result in
float32 is a unit in the last place beside eager's, and in half types, where that is hidden by rounding, a whole unit
once in thousands of elements. Three things make more of that than t = -5 allows:

- float32 that is right at t = -5 only has used up the room that there is;
- products add up what such a kernel makes, as `linear` and convolutions do: where results are small, a unit of one
  operand is many;
- what was rounded to a half type is handed out as float32, where a unit of the half type is too much.

The backward of a convolution is the library's on both sides, and its bits are not always eager's either.

PassBench judged 640 demonstrations in twelve runs: the two of call 1 that were wrong have no text any more, eight
others were wrong and are doubtful so, as eight were of 93 that 512 draws checked. Of the 85 that these draws found
right PassBench judged 22, and one is wrong. All 511 passes whose kernels have eager's bits, or that have no kernel,
backwards of convolutions aside, are right. One of 71 with other kernels that are not doubtful is wrong: a sigmoid,
rounded to float16, that a second kernel multiplies by.
"""

import ast
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.learning.answers import files_of
from agent.learning.reward import LEVEL
from passbench.checking.tolerance import LEVELS

FLOAT32, PRODUCTS, WIDER = "float32 at t = -5 only", "products read a kernel's results", "wider than it was rounded"
BACKWARD = "a convolution's backward"

_INEXACT = re.compile(r"\btl\.(?:sum|cumsum|exp2?|log2?|erf)\(")
"""Functions of Triton whose bits are not those of eager's."""
_HARMLESS = {
    *("view", "_unsafe_view", "reshape", "permute", "transpose", "t", "contiguous", "clone", "alias", "detach"),
    *("expand", "unsqueeze", "squeeze", "flatten", "unflatten", "unbind", "split", "chunk", "slice", "select"),
    *("getitem", "roll", "cat", "stack", "repeat", "flip", "unfold", "size", "pad", "constant_pad_nd", "dropout"),
    *("to", "float", "_to_copy", "relu", "leaky_relu", "max_pool2d"),
}  # fmt: skip
"""Calls that hand on what they read, a unit as a unit."""
_CONVOLUTION_BACKWARD = "aten.convolution_backward."
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.S | re.M)
_VARIANT = re.compile(r"^\d+: (in_.*)$", re.M)
_DTYPE = re.compile(r"(?<= )(?:float\d+|bfloat16)(?=\[)")


def exact(files: Mapping[str, str]) -> bool:
    """Whether all kernels of a pass have eager's bits, as far as its text says; so of a pass without kernels."""
    return not any(map(_INEXACT.search, files.values()))


def doubt(task: str, files: Mapping[str, str], dtypes: Collection[str], level: int | None = None) -> str:
    """Why a pass may be wrong though a check has found it right, empty where nothing speaks for that. `dtypes` are
    those of the inputs of the check, `level` is what it has found; without one: whether to take more draws."""
    floats = {dtype for dtype in dtypes if "float" in dtype}
    if level is not None and "float32" in floats and level >= LEVEL:
        return FLOAT32
    if _CONVOLUTION_BACKWARD in task:
        return BACKWARD
    if exact(files) or (level is not None and floats <= {"float32"} and level <= LEVELS[0]):
        return ""  # eager's bits, in float32 not hidden by rounding
    modules = [_Module.of(text) for name, text in files.items() if name.endswith(".py")]
    flow = _Flow({name for module in modules for name in module.made})
    covered = {name for module in modules for name in module.covered}
    for block in _BLOCK.findall(task):
        flow.follow(line for line in _forward(ast.parse(block)) if not _targets(line) <= covered)
    if flow.added_up or any(module.added_up for module in modules):
        return PRODUCTS
    return WIDER if any(module.wide for module in modules) and floats - {"float32"} else ""


def row_doubt(row: Mapping[str, Any]) -> str:
    """The same of a row of demonstrations, on the variants that `ways.chosen_variants` chose of its task."""
    return doubt(row["task"], files_of(row["answer"]), checked_dtypes(row["task"], row["graph_hash"]), row["level"])


def checked_dtypes(task: str, graph_hash: str) -> set[str]:
    """Dtypes of the floating-point inputs of those variants of a task on which its pass was checked: one of each
    layout, which one is different from graph to graph."""
    groups: dict[str, list[str]] = {}
    for inputs in _VARIANT.findall(task):
        groups.setdefault(_DTYPE.sub("", inputs), []).append(inputs)
    turn = int(graph_hash[:6], 16)
    return {dtype for each in groups.values() for dtype in _DTYPE.findall(each[turn % len(each)])}


@dataclass
class _Flow:
    """Follows what is `made` by kernels without eager's bits, by name, through lines of a host's function or a task.
    `hosts` says of functions that launch kernels whether one is such; `added_up`: whether products read any of it."""

    made: set[str]
    hosts: Mapping[str, bool] = field(default_factory=dict)
    added_up: bool = False

    def follow(self, lines: Iterable[ast.stmt]) -> None:
        """Take in these lines, in order."""
        for line in lines:
            if not isinstance(line, ast.Assign):
                continue
            called = {_called(node) for node in ast.walk(line.value) if isinstance(node, ast.Call)}
            if not _names(line.value) & self.made:
                self.made |= _targets(line) if any(self.hosts.get(name) for name in called) else set()
                continue
            self.made |= _targets(line)
            adds = any(isinstance(node, ast.BinOp) for node in ast.walk(line.value))
            self.added_up |= adds or bool(called - _HARMLESS - set(self.hosts))


@dataclass(frozen=True)
class _Module:
    """A pass: values of its pattern that are not eager's bit for bit, all values that it covers, whether its host has
    products read some, and whether it hands out float32 of such a kernel."""

    made: set[str]
    covered: set[str]
    added_up: bool
    wide: bool

    @classmethod
    def of(cls, text: str) -> "_Module":
        tree = ast.parse(text)
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        kernels = {name: _INEXACT.search(ast.unparse(node)) for name, node in functions.items() if _is_kernel(node)}
        launched = {name: _names(node) & set(kernels) for name, node in functions.items()}
        hosts = {name: any(map(kernels.get, each)) for name, each in launched.items() if each}
        steps, flow = functions.get("steps"), _Flow(set(), hosts)
        flow.follow(steps.body if steps else ())
        made = bool(_returned(steps) & flow.made) if steps else any(hosts.values())
        wide = any("dtype=torch.float32" in ast.unparse(functions[name]) for name, found in hosts.items() if found)
        pattern = functions["pattern"]
        covered = set().union(*map(_targets, pattern.body))
        return cls(_returned(pattern) if made else set(), covered, flow.added_up, wide)


def _forward(tree: ast.Module) -> list[ast.stmt]:
    return next(node.body for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "forward")


def _is_kernel(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(one) == "triton.jit" for one in function.decorator_list)


def _called(call: ast.Call) -> str:
    """The operator's name: `mm` of `torch.ops.aten.mm.default`, `view` of `x.view`."""
    name = ast.unparse(call.func)
    aten = re.match(r"torch\.ops\.aten\.(\w+)", name)
    return aten[1] if aten else name.rpartition(".")[2]


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _targets(line: ast.stmt) -> set[str]:
    return set().union(*map(_names, line.targets)) if isinstance(line, ast.Assign) else set()


def _returned(function: ast.FunctionDef) -> set[str]:
    return next(_names(line.value) for line in function.body if isinstance(line, ast.Return))
