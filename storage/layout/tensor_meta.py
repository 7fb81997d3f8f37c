"""What weight_meta.py and input_meta.py say about the inputs of a graph: a class a tensor, literals only.

A tensor has `name, shape, dtype, device, mean, std, data`, and where it is known `min_val` and `max_val`. PassNet's own
exports add what a record holds beyond that: `stride`, `role`, `distribution`, `symbolic_shape`, `symbolic_stride`.
"""

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storage.errors import PassNetError
from storage.graph.symbols import names
from storage.layout.errors import LayoutError, short
from storage.layout.extra_files import Constraints
from storage.layout.forward import Argument
from storage.layout.syntax import literal, outside, parse
from storage.records import Input, contiguous_stride, dtype_of

MAX_DIMENSIONS = 32
MAX_ELEMENTS = 1 << 50
ROLES = ("input", "parameter", "buffer")
NORMAL, UNIFORM, UNSAID = "normal", "uniform", "unsaid"
"""The `distribution` of an input: of its mean and std, over [min_val, max_val], or as its role alone says."""


@dataclass(frozen=True)
class TensorMeta:
    """One class of a metadata file: its attributes as literals, and where it stands."""

    name: str
    attributes: Mapping[str, Any]
    file: str
    line: int

    def error(self, message: str) -> LayoutError:
        """The error about this tensor."""
        return LayoutError("metadata", f"{short(self.name)} {message}", self.file, self.line)


def read_meta(text: str, file: str) -> dict[str, TensorMeta]:
    """The tensors of a weight_meta.py or input_meta.py by name. Raises LayoutError; executes nothing."""
    found: dict[str, TensorMeta] = {}
    for statement in parse(text, file).body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        if isinstance(statement, ast.Import | ast.ImportFrom) and _is_torch(statement):
            continue
        if not isinstance(statement, ast.ClassDef) or statement.bases or statement.keywords or statement.decorator_list:
            raise outside(statement, file, "stands in place of a plain class a tensor")
        attributes = _attributes(statement, file)
        name = attributes.get("name", statement.name)
        meta = TensorMeta(name if isinstance(name, str) else statement.name, attributes, file, statement.lineno)
        if meta.name in found:
            raise meta.error("is described twice")
        found[meta.name] = meta
    return found


def _is_torch(statement: ast.Import | ast.ImportFrom) -> bool:
    if isinstance(statement, ast.ImportFrom):
        return statement.module == "torch"
    return [alias.name for alias in statement.names] == ["torch"]


def _attributes(definition: ast.ClassDef, file: str) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for statement in definition.body:
        if isinstance(statement, ast.Pass) or (
            isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        ):
            continue
        target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
        if isinstance(statement, ast.AnnAssign) and statement.value is not None:
            target = statement.target
        if not isinstance(target, ast.Name):
            raise outside(statement, file, "stands in place of an attribute and its literal")
        attributes[target.id] = literal(statement.value, file)
    return attributes


def inputs_of(
    arguments: Sequence[Argument],
    metas: Mapping[str, TensorMeta],
    file: str,
    constraints: Constraints | None = None,
) -> tuple[Input, ...]:
    """Records of the arguments that are tensors, in their order.

    `constraints` may hold their shapes in symbols, where the metadata itself does not; `file` is where the metadata
    should be. Raises LayoutError ("metadata") for an argument that is not described as a tensor.
    """
    described = []
    for argument in arguments:
        if argument.kind != "integer":
            meta = _meta_of(argument, metas, file)
            described.append(_input(argument, meta, constraints or Constraints()))
    return tuple(described)


def integers_of(
    arguments: Sequence[Argument], metas: Mapping[str, TensorMeta], file: str, sizes: Mapping[str, int]
) -> dict[str, int]:
    """The numbers that arguments of kind "integer" stand for: from `sizes` by name, or their `data` or `min_val`.

    Raises LayoutError ("metadata") for one that nothing gives a number for.
    """
    numbers: dict[str, int] = {}
    for argument in arguments:
        if argument.kind != "integer":
            continue
        if argument.name in sizes:
            numbers[argument.name] = sizes[argument.name]
            continue
        meta = _meta_of(argument, metas, file)
        values = _flat(meta.attributes.get("data"))
        number = values[0] if len(values) == 1 else meta.attributes.get("min_val")
        if type(number) is not int:
            raise meta.error("is a Python integer without a value: give it as `data`")
        numbers[argument.name] = number
    return numbers


def _meta_of(argument: Argument, metas: Mapping[str, TensorMeta], file: str) -> TensorMeta:
    if argument.name not in metas:
        raise LayoutError("metadata", f"no class describes the argument {short(argument.name)}", file)
    return metas[argument.name]


def _input(argument: Argument, meta: TensorMeta, constraints: Constraints) -> Input:
    attributes = meta.attributes
    shape = _sizes(meta, "shape", attributes.get("shape"))
    if len(shape) > MAX_DIMENSIONS or math.prod(shape) > MAX_ELEMENTS:
        raise meta.error(f"has a shape beyond {MAX_DIMENSIONS} dimensions or {MAX_ELEMENTS} elements")
    stride = contiguous_stride(shape)
    if attributes.get("stride") is not None:
        stride = _sizes(meta, "stride", attributes["stride"])
        if len(stride) != len(shape) or any(step > MAX_ELEMENTS for step in stride):
            raise meta.error("has a stride that does not fit its shape")
    symbolic = _expressions(meta, "symbolic_shape", len(shape))
    return Input(
        name=argument.name,
        role=_role(argument, meta),
        dtype=_dtype(meta),
        shape=shape,
        stride=stride,
        symbolic_shape=constraints.of(argument.name, shape) if symbolic is None else symbolic,
        symbolic_stride=_expressions(meta, "symbolic_stride", len(shape)),
        **_range(meta),
    )


def _role(argument: Argument, meta: TensorMeta) -> str:
    role = meta.attributes.get("role")
    if role is not None:
        if role not in ROLES:
            raise meta.error(f"has a role that is none of {', '.join(ROLES)}")
        return role
    if argument.kind == "parameter" or "_parameters_" in argument.name:  # as dynamo names them
        return "parameter"
    return "buffer" if "_buffers_" in argument.name else "input"


def _dtype(meta: TensorMeta) -> str:
    name = meta.attributes.get("dtype")
    try:
        return str(dtype_of(str(name).removeprefix("torch."))).removeprefix("torch.")
    except ValueError:
        raise meta.error(f"has the dtype {short(name)}, which torch does not have") from None


def _sizes(meta: TensorMeta, what: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or not all(type(size) is int and size >= 0 for size in value):
        raise meta.error(f"has no {what} of whole numbers")
    return tuple(value)


def _expressions(meta: TensorMeta, what: str, count: int) -> tuple[str, ...] | None:
    value = meta.attributes.get(what)
    if value is None:
        return None
    if not isinstance(value, list | tuple) or len(value) != count or not all(isinstance(e, str) for e in value):
        raise meta.error(f"has a {what} that is not one expression a dimension")
    try:
        for expression in value:
            names(expression)
    except PassNetError as error:
        raise meta.error(f"has a bad {what}: {error}") from None
    return tuple(value)


def _range(meta: TensorMeta) -> dict[str, float | None]:
    """`low`, `high`, `mean` and `std` of an input.

    Where a file does not say which distribution they describe, floats have their mean and deviation, or their range if
    it has no negative numbers; integers and booleans have their range, or that of their data.
    """
    attributes = meta.attributes
    distribution = attributes.get("distribution")
    mean, std = (_finite(meta, attributes.get(name)) for name in ("mean", "std"))
    low, high = (_finite(meta, attributes.get(name)) for name in ("min_val", "max_val"))
    if std is not None and std < 0:
        raise meta.error("has a negative deviation")
    if distribution == UNSAID:
        return {"low": None, "high": None, "mean": None, "std": None}
    if distribution == UNIFORM and low is not None and (mean, std) == moments(low, high):
        mean = std = None
    elif distribution is None:
        data = [value for value in _flat(attributes.get("data")) if _is_finite(value)]
        if low is None and data:
            low, high = float(min(data)), float(max(data))
        normal = _dtype(meta).startswith(("float", "bfloat", "complex")) and mean is not None and std is not None
        if normal and (low is None or low < 0):
            low = high = None
        elif low is not None:
            mean = std = None
    return {"low": low, "high": high, "mean": mean, "std": std}


def moments(low: float, high: float | None) -> tuple[float, float]:
    """Mean and standard deviation of a uniform distribution over [low, high]."""
    high = low if high is None else high
    return low + (high - low) / 2, (high - low) / math.sqrt(12)


def _finite(meta: TensorMeta, value: Any) -> float | None:
    if value is None or (isinstance(value, int | float) and not _is_finite(value)):
        return None
    if type(value) not in (int, float):
        raise meta.error("has a mean, deviation or bound that is not a number")
    return float(value)


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and -1e308 <= value <= 1e308


def _flat(data: Any) -> list[Any]:
    if isinstance(data, list | tuple):
        return [value for item in data for value in _flat(item)]
    return [] if data is None else [data]
