"""What a name in fx source stands for: a callable of the allowlist under its stored name, or a constant.

Names are looked up in tables that are made from the allowlist and from torch's own namespaces. No attribute is walked
that the source chooses, and nothing is imported.
"""

import ast
import functools
import math
import operator
import re
from types import ModuleType
from typing import Any

import torch

from storage.graph import targets
from storage.graph.record import Value
from storage.graph.targets import TargetError
from storage.layout.errors import short
from storage.layout.syntax import NUMBERS, outside

_ROOTS = frozenset("torch math operator _operator builtins typing collections __future__".split())
_IMPLIED = {  # names that fx uses in `GraphModule.code` without an import
    "torch": "torch", "math": "math", "operator": "operator", "device": "torch.device", "inf": "math.inf",
    "nan": "math.nan",
}  # fmt: skip
DEVICE = "torch.device"
TENSOR = "torch.Tensor."
NO_EFFECT = frozenset(
    "torch._C._set_grad_enabled torch._C._log_api_usage_once torch._assert torch._assert_async torch._check".split()
)
"""Calls that compute nothing: a graph is run without gradients, and what it asserts held when it was traced."""

_NAMESPACES: dict[str, Any] = {
    "torch": torch,
    "torch.functional": torch.functional,
    "torch.nn.functional": torch.nn.functional,
    "torch._C._VariableFunctions": torch._C._VariableFunctions,
    "torch._C._nn": torch._C._nn,
    "torch._C._special": torch._C._special,
    "torch._C._linalg": torch._C._linalg,
    "torch._C._fft": torch._C._fft,
    "torch.special": torch.special,
    "torch.linalg": torch.linalg,
    "torch.fft": torch.fft,
    "torch._lowrank": torch._lowrank,
    "torch.amp.autocast_mode": torch.amp.autocast_mode,
    "operator": operator,
    "_operator": operator,
    "math": math,
}
_FLAT = re.compile(r"(_operator|operator|math)_(\w+)", re.ASCII)


def imported(statements: list[ast.stmt], file: str) -> dict[str, str]:
    """Name → dotted name, of the imports among a module's statements and of what fx takes for granted.

    Raises LayoutError on an import from anywhere but torch and the few modules that fx sources import.
    """
    names = dict(_IMPLIED)
    for statement in statements:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                _check_root(alias.name, statement, file)
                root = alias.name.partition(".")[0]
                names[alias.asname or root] = alias.name if alias.asname else root
        elif isinstance(statement, ast.ImportFrom):
            _check_root("" if statement.level else statement.module or "", statement, file)
            for alias in statement.names:
                if alias.name == "*":
                    raise outside(statement, file, "of everything (*) does not say what it brings")
                names[alias.asname or alias.name] = f"{statement.module}.{alias.name}"
    return names


def _check_root(module: str, statement: ast.stmt, file: str) -> None:
    if module.partition(".")[0] not in _ROOTS:
        raise outside(statement, file, f"of {short(module or 'a package of its own')} has no place in a graph")


def callable_name(name: str) -> str:
    """The allowlist's name of the callable that a dotted name means: `torch._C._nn.gelu` → `torch.nn.functional.gelu`.

    Raises TargetError if there is none.
    """
    known = _aliases().get(name)
    if known is not None:
        return known
    if name.startswith("torch.ops."):
        return targets.name_of(targets.resolve(name))
    flat = _FLAT.fullmatch(name)  # as torch.fx writes functions of modules other than torch
    if flat and f"{flat[1]}.{flat[2]}" in _aliases():
        return _aliases()[f"{flat[1]}.{flat[2]}"]
    raise TargetError(f"{short(name)} is not in the allowlist of storage/graph/targets.py")


@functools.cache
def _aliases() -> dict[str, str]:
    """All dotted names of the allowlist's functions → the names under which they are stored."""
    stored = {id(function): targets.name_of(function) for function in targets.functions().values()}
    aliases = {name: stored[id(function)] for name, function in targets.functions().items()}
    for prefix, namespace in _NAMESPACES.items():
        for name in _members(namespace):
            if id(getattr(namespace, name)) in stored:
                aliases.setdefault(f"{prefix}.{name}", stored[id(getattr(namespace, name))])
    return aliases


def _members(namespace: Any) -> list[str]:
    names = vars(namespace) if isinstance(namespace, ModuleType) else dir(namespace)
    return [name for name in names if not name.startswith("__")]


@functools.cache
def operator_of(method: str) -> str | None:
    """The operator that a special method is: `__and__` → `operator.and_`; None for other names."""
    if not (method.startswith("__") and method.endswith("__")):
        return None
    plain = method.strip("_")
    found = {f"operator.{plain}", f"operator.{plain}_"} & targets.functions().keys()
    return min(found, default=None)


def constant(name: str) -> Value:
    """The constant that a dotted name means: a dtype, layout, memory format, `math.pi`. Raises KeyError if none."""
    if name in NUMBERS:
        return NUMBERS[name]
    return _constants()[name]


@functools.cache
def _constants() -> dict[str, Value]:
    kinds = (torch.dtype, torch.layout, torch.memory_format)
    constants: dict[str, Value] = {f"torch.{n}": v for n, v in vars(torch).items() if isinstance(v, kinds)}
    constants["Ellipsis"] = ...
    return constants | {f"{module}.{n}": getattr(math, n) for module in ("math", "torch") for n in ("pi", "e", "tau")}
