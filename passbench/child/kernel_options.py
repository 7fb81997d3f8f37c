"""What Triton gives the kernels of a pass: options of its compiler, none that loads code, and memory to work in."""

import functools
from dataclasses import fields
from typing import Any

import torch

_OWN = frozenset(
    """num_warps num_ctas num_stages warp_size maxnreg enable_fp_fusion enable_reflect_ftz launch_cooperative_grid
    default_dot_input_precision allowed_dot_input_precisions max_num_imprecise_acc_default supported_fp8_dtypes
    deprecated_fp8_dot_operand_dtypes debug sanitize_overflow instrumentation_mode""".split()
)
"""What a pass may choose. All else is as Triton has it, `extern_libs` and `launch_pdl` among it."""


class KernelOption(Exception):
    """A kernel is compiled with an option that a pass may not have."""


@functools.cache
def confine_options() -> None:
    """Refuse a kernel for an NVIDIA GPU whose options load code, or let it begin before what comes before it has ended.

    The static policy reads the names of options where they are written out; a pass can put one together from parts.
    Options are read when a kernel is compiled and at no later launch. Raises KernelOption there, and where a compiled
    kernel is launched by itself.
    """
    from triton.backends.nvidia.compiler import CUDABackend
    from triton.compiler import CompiledKernel

    parse = CUDABackend.parse_options

    @functools.wraps(parse)
    def checked(backend: Any, options: dict[str, Any]) -> Any:
        found, usual = parse(backend, options), parse(backend, {})
        changed = [f.name for f in fields(found) if getattr(found, f.name) != getattr(usual, f.name)]
        if foreign := [name for name in changed if name not in _OWN]:
            raise KernelOption(f"kernel_options: a pass may not choose {', '.join(foreign)}; leave it out")
        return found

    CUDABackend.parse_options = checked
    CompiledKernel.__getitem__ = _refused


def _refused(kernel: Any, grid: Any) -> None:
    """What a launch returns can be launched, too, with a number for any tensor, which the driver takes for an address,
    and on any stream. Raises KernelOption."""
    raise KernelOption("kernel_options: a pass launches its kernels, not what a launch has returned")


def lend_memory() -> None:
    """Let kernels for a GPU have the memory that descriptors of tensors need which are made in a kernel: a little of
    torch's, on the current stream. Without that Triton refuses to launch them."""
    import triton

    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.uint8, device="cuda"))
