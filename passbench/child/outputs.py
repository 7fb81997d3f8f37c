"""What a call returned, as the child sees it: leaves, their description, and whether they are of eager's kind."""

from collections.abc import Sequence
from typing import Any

import torch

from passbench.ipc.messages import DTYPES, MAX_DIMS, OutputKind, OutputMeta

_SCALARS = {
    int: (OutputKind.INT, torch.int64),
    float: (OutputKind.FLOAT, torch.float64),
    bool: (OutputKind.BOOL, torch.bool),
}


class BadOutput(Exception):
    """An output that is not what eager's is."""


def flatten(value: Any) -> list[Any]:
    """Tensors and numbers of a module's result, depth first; dicts by their order."""
    if isinstance(value, tuple | list):
        return [leaf for item in value for leaf in flatten(item)]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in flatten(item)]
    return [value]


def describe(value: Any, inputs: Sequence, number: int) -> OutputMeta:
    """What output `number` of a call on `inputs` is. Raises BadOutput if it cannot be compared."""
    if value is None:
        return OutputMeta(OutputKind.NONE, torch.bool, (), (), -1)
    if type(value) in _SCALARS:
        kind, dtype = _SCALARS[type(value)]
        return OutputMeta(kind, dtype, (), (), -1)
    if type(value) is not torch.Tensor or value.layout is not torch.strided or value.dtype not in DTYPES:
        raise BadOutput(f"output {number} is a {type(value).__name__} that PassBench cannot compare")
    if value.dim() > MAX_DIMS:
        raise BadOutput(f"output {number} has {value.dim()} dimensions; PassBench handles up to {MAX_DIMS}")
    return OutputMeta(OutputKind.TENSOR, value.dtype, tuple(value.shape), value.stride(), _alias(value, inputs))


def _alias(value: torch.Tensor, inputs: Sequence) -> int:
    """The number of the input whose storage `value` shares, -1 for none; each input has a storage of its own."""
    if value.numel() == 0:
        return -1
    start = value.untyped_storage().data_ptr()
    for number, x in enumerate(inputs):
        if isinstance(x, torch.Tensor) and x.numel() and x.untyped_storage().data_ptr() == start:
            return number
    return -1


def check(outputs: Sequence, inputs: Sequence, expected: tuple[OutputMeta, ...], *, strict: bool) -> None:
    """Outputs are what eager's are; raises BadOutput. Not `strict`: as many, and nothing more."""
    if len(outputs) != len(expected):
        raise BadOutput(f"{len(outputs)} outputs, where eager has {len(expected)}")
    if strict:
        for number, (output, meta) in enumerate(zip(outputs, expected, strict=True)):
            _check_one(output, inputs, number, meta)


def _check_one(output: Any, inputs: Sequence, number: int, meta: OutputMeta) -> None:
    if meta.kind is not OutputKind.TENSOR:
        kind = OutputKind.NONE if output is None else _SCALARS.get(type(output), (None, None))[0]
        if kind is not meta.kind:
            raise BadOutput(f"output {number} is a {type(output).__name__}, where eager has a {meta.kind.name.lower()}")
        return
    if type(output) is not torch.Tensor:
        raise BadOutput(f"output {number} is a {type(output).__name__}, not a torch.Tensor")
    found = (output.dtype, tuple(output.shape))
    if found != (meta.dtype, meta.shape):
        raise BadOutput(
            f"output {number} is {found[0]} {list(found[1])}, where eager has {meta.dtype} {list(meta.shape)}"
        )
    shared = _alias(output, inputs)
    if shared not in (-1, meta.aliases):
        raise BadOutput(f"output {number} shares memory with input {shared}, which eager's does not")
