"""What Triton lacks where there is no GPU. Triton is imported late: eager's child does without its interpreter."""

from collections.abc import Callable


def untimed_autotuning() -> None:
    """Without a GPU Triton has no benchmarker: each configuration is tried once, and the first one kept."""
    from triton.runtime.autotuner import Autotuner

    def try_once(kernel_call: Callable, quantiles: tuple[float, ...]) -> list[float]:
        kernel_call()
        return [1.0 for _ in quantiles]

    Autotuner.do_bench = property(lambda self: try_once)


def round_bfloat16_to_nearest() -> None:
    """The interpreter truncates float32 to bfloat16 where a GPU rounds to nearest even; this makes it round."""
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    truncating = interpreter.InterpreterBuilder.cast_impl

    def cast_impl(self, src, dst_type):
        if (src.dtype.scalar, dst_type.scalar) != (tl.float32, tl.bfloat16):
            return truncating(self, src, dst_type)
        bits = np.ascontiguousarray(src.data).view(np.uint32).astype(np.uint64)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        data = np.where(np.isnan(src.data), 0x7FC0, rounded).astype(np.uint16)
        return interpreter.TensorHandle(data, dst_type.scalar)

    interpreter.InterpreterBuilder.cast_impl = cast_impl
