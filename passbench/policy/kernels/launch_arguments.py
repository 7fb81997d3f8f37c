"""The static policy on what a launch hands to a kernel that it names: what Triton would only refuse when it runs."""

import ast
from dataclasses import fields

from triton.backends.nvidia.compiler import CUDAOptions

from passbench.policy import allowlists as names
from passbench.policy.kernels.addresses import is_constant
from passbench.policy.nodes import names_by_place
from passbench.policy.scopes import defaults, parameters
from passbench.policy.suggestions import nearest

_OPTIONS = frozenset(f.name for f in fields(CUDAOptions)) | {"grid", "warmup"} | names.REFUSED_OPTIONS.keys()
"""Keywords of a launch that are no parameters of its kernel. Those that are refused have a rule of their own."""


def fault_of_launch(kernel: ast.FunctionDef, call: ast.Call) -> str | None:
    """What is wrong with the arguments of `kernel[grid](…)`, and what to write instead; None if nothing is."""
    order = names_by_place(kernel)
    if (message := _unknown(kernel, call.keywords)) is not None:
        return message
    if _is_spread(call):
        return None
    if len(call.args) > len(order) and kernel.args.vararg is None:
        return f"{kernel.name} has {len(order)} parameters and gets {len(call.args)} arguments by position"
    given = {k.arg for k in call.keywords}
    if twice := [name for name in order[: len(call.args)] if name in given]:
        return f"{kernel.name} gets {twice[0]} by position and by name; give it once"
    left = [name for name in _needed(kernel, order[len(call.args) :]) if name not in given]
    return f"{kernel.name} needs {', '.join(left)}; hand it to the launch" if left else None


def fault_of_constants(kernel: ast.FunctionDef, call: ast.Call) -> str | None:
    """The same for `Launch(kernel, grid, …)`, which is given the constants by name, and the tensors later."""
    if (message := _unknown(kernel, call.keywords)) is not None or _is_spread(call):
        return message
    given = {k.arg for k in call.keywords}
    constants = [p.arg for p in parameters(kernel) if is_constant(p) and p.arg not in given]
    left = _needed(kernel, constants)
    return f"{kernel.name} needs {', '.join(left)}; hand it to Launch by name" if left else None


def _unknown(kernel: ast.FunctionDef, keywords: list[ast.keyword]) -> str | None:
    known = {p.arg for p in parameters(kernel)}
    for keyword in keywords if kernel.args.kwarg is None else ():
        if keyword.arg is not None and keyword.arg not in known and keyword.arg not in _OPTIONS:
            near = nearest(keyword.arg, known | {"num_warps", "num_stages", "num_ctas"})
            advice = f"did you mean {near}?" if near else f"it has {', '.join(p.arg for p in parameters(kernel))}"
            return f"{kernel.name} has no parameter {keyword.arg}; {advice}"
    return None


def _needed(kernel: ast.FunctionDef, order: list[str]) -> list[str]:
    """Of these parameters, those that nothing but a launch gives: they have no default, and no decorator chooses."""
    chosen = any(isinstance(d, ast.Call) and (d.args or d.keywords) for d in kernel.decorator_list)
    optional = {p.arg for p, _ in defaults(kernel)}
    return [] if chosen else [name for name in order if name not in optional]


def _is_spread(call: ast.Call) -> bool:
    return any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)
