"""Why a pass is faster, in a few sentences of facts about the graph and the pass."""

import ast
import math
from collections.abc import Mapping

from agent.distill.eager.op_effects import OpEffectsError, TensorLayout, find_effects
from storage.records import Variant, dtype_of


def rationale(variant: Variant, files: Mapping[str, str]) -> str:
    """What eager does in this variant, what the pass does instead, and what that saves."""
    kernels = sum(text.count("@triton.jit\ndef ") for text in files.values())
    launches = sum(text.count("Launch(") + text.count("_kernel[") for text in files.values())
    ops = len(variant.graph.ops)
    count = _counted(launches, "kernel")
    try:
        known = find_effects(variant.graph, variant.inputs)
    except OpEffectsError:
        return f"Of {_counted(ops, 'op')}, what is replaced becomes {count if kernels else 'fewer calls'}."
    eager = f"Eager runs {_counted(ops, 'op')} in {_counted(sum(known.launches), 'launch', 'es')}"
    if any("captured(" in text for text in files.values()):
        calls = f"{count} and the library calls between them" if kernels else "the same calls"
        return f"{eager}; {calls} are replayed as one CUDA graph, which costs the host one launch."
    returned = {ref.index for ref in variant.graph.output}
    between = [
        value
        for number, value in enumerate(known.values)
        if number >= variant.graph.inputs and number not in returned and isinstance(value, TensorLayout)
    ]
    owned = {value.storage: value for value in between if value.storage not in _outer(known, variant)}
    bytes_ = 2 * sum(math.prod(v.shape) * dtype_of(v.dtype).itemsize for v in owned.values())
    reductions = any(f"tl.{name}(" in text for text in files.values() for name in ("sum", "max", "min", "reduce"))
    how = "one program a row" if reductions else "one pass over the elements"
    whole = _replaced(files) == ops
    said = [f"{eager}; {count} {'does' if launches == 1 else 'do'} the same, {how}."]
    if not whole:
        said = [f"{eager}. The pass has {count}, {how}."]
    if bytes_ and whole:
        said.append(f"{_size(bytes_)} of intermediate results are neither written nor read.")
    if any(".to(dtype)" in text or ".to(tl.float" in text for text in files.values()):
        said.append("The kernel computes in float32 and rounds where eager rounds.")
    return " ".join(said)


def _counted(number: int, what: str, plural: str = "s") -> str:
    return f"{number} {what}{plural if number != 1 else ''}"


def _replaced(files: Mapping[str, str]) -> int:
    """How many ops the patterns have: lines that compute a value, and in a pattern of one expression its operations."""
    parsed = (ast.parse(text) for name, text in files.items() if name.endswith(".py"))
    functions = (one for module in parsed for one in module.body if isinstance(one, ast.FunctionDef))
    return sum(_ops_of(one) for one in functions if one.name == "pattern")


def _ops_of(pattern: ast.FunctionDef) -> int:
    lines = sum(isinstance(line, ast.Assign) for line in pattern.body)
    return lines or sum(isinstance(node, ast.Call | ast.BinOp) for line in pattern.body for node in ast.walk(line))


def _outer(known, variant: Variant) -> set:
    """Storages of inputs and results: what is there in any case."""
    numbers = [*range(variant.graph.inputs), *(ref.index for ref in variant.graph.output)]
    return {known.values[n].storage for n in numbers if isinstance(known.values[n], TensorLayout)}


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
