"""Small graphs put together at random from operators that models use: more of the same kind than a few models hold.

Sizes are those of models; `few_rows` has the same graph at sizes that can be checked by the interpreter. They are told
apart from real ones by their models, which are empty. None has the family of a held-out sample: whoever makes
demonstrations of them filters, as with real ones.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import replace

import torch

from dedup.hashes import identify
from passbench.matching.trace_pattern import PatternTracer
from storage.graph.as_fx import from_fx
from storage.records import Input, Sample, Variant

_UNARY = (
    "torch.nn.functional.relu({0}, inplace=False)",
    "torch.relu({0})",
    "torch.nn.functional.gelu({0})",
    "torch.nn.functional.gelu({0}, approximate='tanh')",
    "torch.nn.functional.silu({0}, inplace=False)",
    "torch.sigmoid({0})",
    "{0}.sigmoid()",
    "torch.tanh({0})",
    "torch.nn.functional.hardtanh({0}, -1.0, 1.0)",
    "torch.nn.functional.hardswish({0}, False)",
    "torch.nn.functional.hardsigmoid({0}, False)",
    "torch.ops.aten.silu.default({0})",
    "torch.ops.aten.add.Tensor({0}, {f})",
    "torch.ops.aten.mul.Scalar({0}, {i})",
    "torch.nn.functional.leaky_relu({0}, {f}, False)",
    "torch.clamp({0}, -{i}, {i})",
    "torch.nn.functional.dropout({0}, {f}, False, False)",
    "torch.abs({0})",
    "torch.exp({0})",
    "torch.square({0})",
    "torch.pow({0}, 2)",
    "{0}.pow(2)",
    "-{0}",
    "{0} * {f}",
    "{0} + {f}",
    "{0} - {f}",
    "{0} / {g}",
    "{f} - {0}",
    "{0} * {i}",
    "{0} + {i}",
    "torch.ops.aten.mul.Scalar({0}, {f})",
    "torch.ops.aten.mul.Tensor({0}, {f})",
    "torch.ops.aten.div.Scalar({0}, {i})",
    "torch.ops.aten.pow.Tensor_Scalar({0}, 2)",
    "torch.ops.aten.neg.default({0})",
)
_BINARY = (
    "{0} + {1}",
    "{0} - {1}",
    "{0} * {1}",
    "torch.maximum({0}, {1})",
    "torch.ops.aten.add.Tensor({0}, {1})",
    "torch.ops.aten.mul.Tensor({0}, {1})",
    "torch.ops.aten.sub.Tensor({0}, {1})",
    "torch.add({0}, {1})",
    "torch.mul({0}, {1})",
)
_BACKWARD = (
    "torch.ops.aten.threshold_backward.default({0}, {1}, 0)",
    "torch.ops.aten.silu_backward.default({0}, {1})",
    "torch.ops.aten.gelu_backward.default({0}, {1})",
    "torch.ops.aten.sigmoid_backward.default({0}, {1})",
    "torch.ops.aten.tanh_backward.default({0}, {1})",
    "torch.ops.aten.hardswish_backward.default({0}, {1})",
    "torch.ops.aten.hardsigmoid_backward.default({0}, {1})",
)
_LAST = {
    3: ("{0}.transpose(1, 2)", "{0}.transpose(1, 2).contiguous()", "{0}.unsqueeze(1)", "{0}.flatten(1)"),
    4: ("{0}.permute(0, 2, 3, 1)", "{0}.permute(0, 3, 1, 2).contiguous()", "{0}.flatten(2)", "{0}.transpose(1, 2)"),
}
_ROWS = (
    "torch.nn.functional.softmax({0}, dim=-1)",
    "torch.softmax({0}, -1)",
    "{0}.softmax(dim=-1)",
    "torch.nn.functional.layer_norm({0}, ({c},), {w}, {b}, 1e-05)",
    "torch.nn.functional.layer_norm({0}, ({c},), {w}, {b}, 1e-06)",
    "{0} - {0}.mean(-1, keepdim=True)",
    "{0} * torch.rsqrt({0}.pow(2).mean(-1, keepdim=True) + 1e-06)",
    "{0} / ({0}.sum(-1, keepdim=True) + 1e-20)",
    "{0} - {0}.amax(-1, keepdim=True)",
    "{0}.mean(-1, keepdim=True)",
    "torch.ops.aten.sum.dim_IntList({0}, [-1], True)",
)
_BATCH_NORM = "torch.nn.functional.batch_norm({0}, {m}, {v}, {w}, {b}, False, 0.1, 1e-05)"
_CONSTANTS = "0.5 0.125 0.1 0.2 0.25 0.01 0.7071067811865476 1.702 0.9 0.05 0.001 0.3".split()


def composed(seed: int) -> Iterator[Sample]:
    """Samples without end, each of one graph in three dtypes; the same seed gives the same."""
    rng = random.Random(seed)
    while True:
        lines, inputs, returned = _graph(rng)
        text = f"def graph({', '.join(name for name, *_ in inputs)}):\n"
        text += "".join(f"    {line}\n" for line in lines) + f"    return ({', '.join(returned)},)\n"
        scope: dict = {"torch": torch}
        exec(text, scope)  # of our own lines
        graph = from_fx(PatternTracer().trace(scope["graph"]))
        variants = []
        for dtype in ("float32", "float16", "bfloat16"):
            given = tuple(_input(n, role, dtype, shape) for n, (_, role, shape) in enumerate(inputs))
            variants.append(identify(Variant("fusible", graph, given, ())))
        family = variants[0].family_hash
        yield Sample(f"composed-{variants[0].graph_hash[:12]}", family, "fusible", "train", tuple(variants))


def few_rows(sample: Sample) -> Sample:
    """A composed sample with the same columns and few rows: sizes before the last are 2 or 3 where they are not 1."""
    shape = max((i.shape for i in sample.variants[0].inputs), key=len)
    few = {size: _FEW[place] for place, size in enumerate(shape[:-1]) if size > 1}
    variants = []
    for one in sample.variants:
        sizes = [tuple(few.get(size, size) for size in i.shape) for i in one.inputs]
        inputs = tuple(_input(n, i.role, i.dtype, sizes[n]) for n, i in enumerate(one.inputs))
        variants.append(identify(replace(one, inputs=inputs)))
    return replace(sample, variants=tuple(variants))


_FEW = (2, 3, 2)
_COLUMNS = (12, 16, 20, 24, 32, 40, 48, 49, 60, 64, 80, 96, 100, 128, 144, 160, 192, 197, 256, 320, 384, 512, 768)
_ROWS_OF = (1, 10, 12, 14, 16, 28, 32, 49, 56, 60, 64, 98, 100, 112, 128, 196, 197, 256)
_MOST = 2_000_000  # elements of the largest input


def _graph(rng: random.Random) -> tuple[list[str], list[tuple[str, str, tuple[int, ...]]], list[str]]:
    rank = rng.choice((2, 3, 3, 3, 4, 4))
    while True:
        shape = (*(rng.choice(_ROWS_OF) for _ in range(rank - 1)), rng.choice(_COLUMNS))
        if math.prod(shape) < _MOST and len(set(shape)) == rank and 1 not in shape[1:]:
            break  # sizes that are told apart, else a task does not say which of them counts
    columns = shape[-1]
    inputs: list[tuple[str, str, tuple[int, ...]]] = []
    lines: list[str] = []

    def new_input(*size: int, role: str = "input") -> str:
        inputs.append((f"x{len(inputs)}", role, size))
        return inputs[-1][0]

    values = [new_input(*shape)]
    backward = rng.random() < 0.2
    for _ in range(rng.choice((1, 2, 2, 3, 3, 4, 5, 6, 7))):
        value = values[-1] if rng.random() < 0.8 else rng.choice(values)
        kind = rng.random()
        fills = {
            "f": rng.choice(_CONSTANTS),
            "g": rng.choice(("2.0", "3.0", "8.0", "2", "1.5")),
            "i": rng.randint(2, 9),
        }
        if kind < 0.4:
            written = rng.choice(_UNARY).format(value, **fills)
        elif kind < 0.75:
            forms = _BACKWARD if backward and rng.random() < 0.6 else _BINARY
            other = (
                (value, new_input(*shape)) if forms is _BACKWARD else _operands(rng, value, values, shape, new_input)
            )
            written = rng.choice(forms).format(*other)
        elif kind < 0.8 and rank == 4:
            stored = [new_input(shape[1], role=role) for role in ("buffer", "buffer", "parameter", "parameter")]
            written = _BATCH_NORM.format(value, **dict(zip("mvwb", stored, strict=True)))
        else:
            form = rng.choice(_ROWS)
            norm = {"c": columns, "w": "", "b": ""}
            if "{w}" in form:
                norm |= {"w": new_input(columns, role="parameter"), "b": new_input(columns, role="parameter")}
            written = form.format(value, **norm)
        values.append(f"t{len(lines)}")
        lines.append(f"{values[-1]} = {written}")
        if _ends_rows(written):
            break
    if rank in _LAST and rng.random() < 0.15 and not _ends_rows(lines[-1]):
        values.append(f"t{len(lines)}")
        lines.append(f"{values[-1]} = {rng.choice(_LAST[rank]).format(values[-2])}")
    returned = [values[-1]]
    if len(lines) > 2 and rng.random() < 0.2:
        returned.insert(0, rng.choice(values[1:-1]))
    return lines, inputs, returned


def _ends_rows(line: str) -> bool:
    """Whether a line ends in one value a row."""
    return line.endswith((".mean(-1, keepdim=True)", "[-1], True)")) and " - " not in line


def _operands(rng: random.Random, value: str, values: list[str], shape: tuple[int, ...], new_input) -> list[str]:
    kind = rng.random()
    if kind < 0.3 and len(values) > 1:
        other = rng.choice(values)
    elif kind < 0.6:
        other = new_input(*shape)
    elif kind < 0.8:
        other = new_input(shape[-1], role="parameter")
    elif kind < 0.9 and len(shape) == 4:
        other = new_input(1, shape[1], 1, 1, role="parameter")
    else:
        other = new_input(*shape[:-1], 1)
    pair = [value, other]
    if rng.random() < 0.4:
        pair.reverse()
    return pair


def _input(number: int, role: str, dtype: str, shape: tuple[int, ...]) -> Input:
    stride, step = [], 1
    for size in reversed(shape):
        stride.insert(0, step)
        step *= size
    return Input(f"in_{number}", role, dtype, shape, tuple(stride))
