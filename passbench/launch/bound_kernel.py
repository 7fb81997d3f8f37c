"""A compiled Triton kernel with all arguments bound but the addresses of its tensors.

It is launched by torch's static launcher (`torch._C._StaticCudaLauncher`, which torch ships for TorchInductor's
kernels), one C function for all kernels. What that does not take is launched by Triton's launcher of the kernel.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

ALIGNMENT = 16
"""Bytes; Triton compiles one kernel for pointers that are multiples of it, and others for all else."""

_KINDS = {"i32": "i", "i64": "l", "u64": "K", "fp32": "f", "fp64": "d"}
"""Triton's types of numbers, and what the static launcher calls them."""


def aligned(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether a kernel that is compiled for aligned pointers may have these tensors."""
    return not any(tensor.data_ptr() % ALIGNMENT for tensor in tensors)


class BoundKernel:
    """`compiled` with its grid; `tensors` are its first parameters, so many, and `rest` the others by name.

    `call` is a function and its first arguments; the others are the tensors' addresses with `rest`, and a stream.
    """

    def __init__(self, compiled: Any, grid: tuple[int, ...], tensors: int, rest: Mapping[str, Any]) -> None:
        static = static_arguments(compiled, tensors, rest)
        if static is None:
            launch, options = _by_triton(compiled.run, compiled.packed_metadata), (0, 0, "")
            self.rest = tuple(rest.values())
        else:
            launch = torch._C._StaticCudaLauncher._launch_kernel
            kinds, self.rest = static
            options = (compiled.metadata.num_warps, compiled.metadata.shared, kinds)
        self.call = (launch, compiled.function, *(*grid, 1, 1)[:3], *options)

    def launch(self, addresses: tuple[int, ...], stream: int) -> None:
        """Launch on tensors at these addresses, which are aligned, of the dtypes that the kernel was compiled for."""
        launch, *given = self.call
        launch(*given, (*addresses, *self.rest), stream)


def static_arguments(compiled: Any, tensors: int, rest: Mapping[str, Any]) -> tuple[str, tuple] | None:
    """What torch's static launcher needs for a kernel: the kinds of its arguments, and their values behind the tensors.
    None if this torch has no such launcher, or it does not take this kernel."""
    metadata = compiled.metadata
    plain = (
        hasattr(torch._C, "_StaticCudaLauncher")
        and metadata.target.backend == "cuda"
        and metadata.num_ctas == 1
        and not any(getattr(metadata, name, False) for name in ("launch_cooperative_grid", "launch_pdl"))
    )
    types = list(compiled.src.signature.values())
    if not plain or not all(type(t) is str and t.startswith("*") for t in types[:tensors]):
        return None
    kinds, values = "O" * tensors, []
    for kind, value in zip(types[tensors:], rest.values(), strict=True):
        if kind == "constexpr":  # also an int that is 1, and None: it is in the kernel
            continue
        if kind not in _KINDS or type(value) not in (int, float):
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


def _by_triton(run: Callable[..., None], metadata: Any) -> Callable[..., None]:
    """Triton's launcher of one kernel, called as the static launcher is."""

    def launch(function: Any, x: int, y: int, z: int, warps: int, shared: int, kinds: str, given: tuple, stream: int):
        # As `JITFunction.run` does it, less what is for hooks on launches.
        run(x, y, z, stream, function, metadata, None, None, None, *given)

    return launch
