"""Write `dedup/signatures.txt` from the installed torch: `python -m dedup.make_signatures`.

Names and positions come from `inspect.signature` for Python functions and from ATen's schemas for built-in ones. The
table in use was written from torch 2.15, which has no schemas for named dimensions any more. A new table changes
hashes: make one only for ops that the old one lacks, or to mend an error, and say so in the release.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch._jit_internal import boolean_dispatched

from dedup.signatures import TABLE, CallSignature
from storage.graph import targets
from storage.graph.record import Op, op_name


def table() -> dict[str, tuple[CallSignature, ...]]:
    """Op name (methods with a leading dot) → the signatures under which it may be called, where torch tells any."""
    found = {op_name(op): tuple(dict.fromkeys(filter(str, signatures(op)))) for op in allowed()}
    return {name: each for name, each in found.items() if each}


def text(signatures_by_name: dict[str, tuple[CallSignature, ...]]) -> str:
    """The table as text, ops with equal signatures on one line."""
    lines: dict[str, list[str]] = {}
    for name, each in sorted(signatures_by_name.items()):
        lines.setdefault(" ".join(map(str, each)), []).append(name)
    return "".join(f"{called}\t{' '.join(names)}\n" for called, names in sorted(lines.items()))


def allowed() -> Iterator[Op]:
    """Every target of the allowlist that the installed torch has, as an op without arguments."""
    for name in targets.functions():
        yield Op("function", name, (), {})
    for name in sorted(targets.methods()):
        yield Op("method", name, (), {})
    for schema in torch._C._jit_get_all_schemas():
        target = f"torch.ops.{schema.name.replace('::', '.')}.{schema.overload_name or 'default'}"
        try:
            targets.resolve(target)
        except targets.TargetError:  # not in the allowlist
            continue
        yield Op("function", target, (), {})


def signatures(op: Op) -> tuple[CallSignature, ...]:
    """What the installed torch says of the op."""
    if op.kind == "method":
        function, name = getattr(torch.Tensor, op.target), op.target
    elif op.target.startswith("torch."):
        function, name = targets.resolve(op.target), _aten_name(op.target)
    else:
        return ()
    if isinstance(function, torch._ops.OpOverload):
        return (_of_schema(function._schema),)
    if inspect.isfunction(function):
        dispatched = boolean_dispatched.get(function)  # max_pool2d and the like: both branches have these parameters
        return _of_python(dispatched["if_false"] if dispatched else function)
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return ()
    schemas = (getattr(packet, overload)._schema for overload in packet.overloads())
    return tuple(s for s in map(_of_schema, schemas) if op.kind == "function" or s.positional[:1] == ("self",))


def _aten_name(target: str) -> str:
    """`torch.special.erf` → special_erf; `torch.relu` and `torch._C._nn.relu` → relu."""
    *_, namespace, name = target.split(".")
    return f"{namespace}_{name}" if namespace in ("special", "linalg", "fft") else name


def _of_python(function: Callable) -> tuple[CallSignature, ...]:
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        return ()
    return (_signature((p.name, p.kind is p.KEYWORD_ONLY, p.default is not p.empty) for p in parameters),)


def _of_schema(schema: Any) -> CallSignature:
    return _signature((a.name, a.kwarg_only, a.has_default_value()) for a in schema.arguments)


def _signature(parameters: Iterable[tuple[str, bool, bool]]) -> CallSignature:
    rows = list(parameters)
    return CallSignature(
        tuple(name for name, keyword_only, _ in rows if not keyword_only),
        frozenset(name for name, keyword_only, _ in rows if keyword_only),
        frozenset(name for name, _, has_default in rows if not has_default),
    )


if __name__ == "__main__":
    Path(TABLE).write_text(text(table()), encoding="utf-8")
