"""A compiled Triton kernel with all arguments bound but its tensors' addresses, as `native/kernel.c` launches it."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from passbench.launch.native_launch import driver, native

ALIGNMENT = 16
"""Bytes; Triton compiles one kernel for pointers that are multiples of it, and others for all else."""

_KINDS = {"u1": "B", "i32": "i", "i64": "l", "u64": "K", "fp32": "f", "fp64": "d"}
"""Triton's types of numbers, and what `native/kernel.c` calls them."""
_WARP = 32
"""Threads."""


def aligned(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether a kernel that is compiled for aligned pointers may have these tensors."""
    return not any(tensor.data_ptr() % ALIGNMENT for tensor in tensors)


def bound_kernel(compiled: Any, device: int, grid: tuple[int, ...], tensors: int, rest: Mapping[str, Any]) -> Any:
    """`compiled` with its device and grid; `tensors` are its first parameters, so many, and `rest` the others by name.

    Its `launch(addresses, stream)` launches it on tensors at these addresses, which are aligned, of the dtypes that it
    was compiled for. None for a kernel that more than addresses and plain numbers belong to: Triton launches it.
    """
    plain = plain_arguments(compiled, tensors, rest)
    if plain is None:
        return None
    x, y, z = (*grid, 1, 1)[:3]
    threads = _WARP * compiled.metadata.num_warps
    shared = compiled.metadata.shared
    return native().Kernel(driver(), device, compiled.function, (x, y, z), threads, shared, tensors, *plain)


def plain_arguments(compiled: Any, tensors: int, rest: Mapping[str, Any]) -> tuple[str, tuple] | None:
    """The kinds of a kernel's arguments behind its tensors, and their values; None if some are of no such kind, or the
    kernel is launched in another way (clusters, cooperation between programs)."""
    metadata = compiled.metadata
    plain = (
        metadata.target.backend == "cuda"
        and metadata.num_ctas == 1
        and not any(getattr(metadata, name, False) for name in ("launch_cooperative_grid", "launch_pdl"))
    )
    types = list(compiled.src.signature.values())
    if not plain or not all(type(t) is str and t.startswith("*") for t in types[:tensors]):
        return None
    kinds, values = "", []
    for kind, value in zip(types[tensors:], rest.values(), strict=True):
        if kind == "constexpr":  # also an int that is 1, and None: it is in the kernel
            continue
        if kind not in _KINDS or type(value) not in (bool, int, float):
            return None
        kinds += _KINDS[kind]
        values.append(value)
    for size in ("global_scratch_size", "profile_scratch_size"):
        if hasattr(metadata, size):
            if getattr(metadata, size):
                return None
            kinds += "O"
            values.append(None)
    return kinds, tuple(values)
