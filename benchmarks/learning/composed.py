"""Small graphs put together at random from operators that models use: more of the same kind than a few models hold.

They are told apart from real ones by their models, which are empty. None has the family of a held-out sample: whoever
makes demonstrations of them filters, as with real ones.
"""

import random
from collections.abc import Iterator

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
)
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


def _graph(rng: random.Random) -> tuple[list[str], list[tuple[str, str, tuple[int, ...]]], list[str]]:
    rank = rng.choice((2, 3, 3, 4))
    shape = tuple(rng.choice((2, 3, 4, 5, 6, 7, 8)) for _ in range(rank - 1))
    shape = (*shape, rng.choice((8, 12, 16, 20, 24, 32, 40)))
    columns = shape[-1]
    inputs: list[tuple[str, str, tuple[int, ...]]] = []
    lines: list[str] = []

    def new_input(*size: int, role: str = "input") -> str:
        inputs.append((f"x{len(inputs)}", role, size))
        return inputs[-1][0]

    values = [new_input(*shape)]
    for _ in range(rng.choice((2, 2, 3, 3, 4, 5, 6, 7))):
        value = values[-1] if rng.random() < 0.8 else rng.choice(values)
        kind = rng.random()
        fills = {
            "f": rng.choice(_CONSTANTS),
            "g": rng.choice(("2.0", "3.0", "8.0", "2", "1.5")),
            "i": rng.randint(2, 9),
        }
        if kind < 0.45:
            written = rng.choice(_UNARY).format(value, **fills)
        elif kind < 0.8:
            written = rng.choice(_BINARY).format(*_operands(rng, value, values, shape, new_input))
        else:
            form = rng.choice(_ROWS)
            norm = {"c": columns, "w": "", "b": ""}
            if "{w}" in form:
                norm |= {"w": new_input(columns, role="parameter"), "b": new_input(columns, role="parameter")}
            written = form.format(value, **norm)
        values.append(f"t{len(lines)}")
        lines.append(f"{values[-1]} = {written}")
    returned = [values[-1]]
    if len(lines) > 2 and rng.random() < 0.2:
        returned.insert(0, rng.choice(values[1:-1]))
    return lines, inputs, returned


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
