"""One way to write a call: keyword arguments that could be positional become positional, the rest are sorted by name.

Names and positions come from `inspect.signature` for Python functions and from ATen's schemas for built-in ones.
Where the schemas that fit a call disagree, or nothing is known, the call stays as it is, so that at worst two equal
calls keep two forms.
"""

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from storage import targets
from storage.graph import Op


@dataclass(frozen=True)
class Signature:
    """Names of the positional parameters in order, of the keyword-only ones, and of those without default."""

    positional: tuple[str, ...]
    keyword_only: frozenset[str]
    required: frozenset[str]


def normalised(op: Op) -> Op:
    """The same call with keywords moved into positions and sorted."""
    if not op.kwargs:
        return op
    moved = _positional_keywords(op.kind, op.target, len(op.args), frozenset(op.kwargs))
    rest = sorted(op.kwargs.keys() - set(moved))
    return Op(op.kind, op.target, op.args + tuple(op.kwargs[k] for k in moved), {k: op.kwargs[k] for k in rest})


@functools.cache
def _positional_keywords(kind: str, target: str, given: int, keywords: frozenset[str]) -> tuple[str, ...]:
    """Which of `keywords` follow `given` positional arguments, in order."""
    answers = set()
    for signature in signatures(kind, target):
        names = keywords
        if "input" in keywords and "input" not in signature.positional and "self" in signature.positional:
            names = keywords - {"input"} | {"self"}  # torch.add(input=...) is ATen's `self`
        known = set(signature.positional) | signature.keyword_only
        filled = set(signature.positional[:given]) | names
        fits = given <= len(signature.positional) and names <= known and signature.required <= filled
        if not fits or names & set(signature.positional[:given]):
            continue
        following = []
        for name in signature.positional[given:]:
            if name not in names:
                break
            following.append(name if name in keywords else "input")
        answers.add(tuple(following))
    return answers.pop() if len(answers) == 1 else ()


@functools.cache
def signatures(kind: str, target: str) -> tuple[Signature, ...]:
    """The signatures under which an op may be called; empty where torch does not tell."""
    if kind == "method":
        function, name = getattr(torch.Tensor, target, None), target
    elif target.startswith("torch."):
        try:
            function = targets.resolve(target)
        except targets.TargetError:  # of another torch version: the call stays as it is
            return ()
        name = _aten_name(target)
    else:
        return ()
    if isinstance(function, torch._ops.OpOverload):
        return (_of_schema(function._schema),)
    if inspect.isfunction(function):
        return _of_python(function)
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return ()
    schemas = [_of_schema(getattr(packet, overload)._schema) for overload in packet.overloads()]
    return tuple(s for s in schemas if kind == "function" or s.positional[:1] == ("self",))


def _aten_name(target: str) -> str:
    """`torch.special.erf` → special_erf; `torch.relu` and `torch._C._nn.relu` → relu."""
    *_, namespace, name = target.split(".")
    return f"{namespace}_{name}" if namespace in ("special", "linalg", "fft") else name


def _of_python(function: Callable) -> tuple[Signature, ...]:
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        return ()
    return (_signature((p.name, p.kind is p.KEYWORD_ONLY, p.default is not p.empty) for p in parameters),)


def _of_schema(schema: Any) -> Signature:
    return _signature((a.name, a.kwarg_only, a.has_default_value()) for a in schema.arguments)


def _signature(parameters: Iterable[tuple[str, bool, bool]]) -> Signature:
    rows = list(parameters)
    return Signature(
        tuple(name for name, keyword_only, _ in rows if not keyword_only),
        frozenset(name for name, keyword_only, _ in rows if keyword_only),
        frozenset(name for name, _, has_default in rows if not has_default),
    )
