"""What Triton lacks where there is no GPU. Triton is imported late: eager's child does without its interpreter."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch


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


def spare_idle_work() -> None:
    """Leave out what the interpreter does without effect, a third of its time.

    It works out each integer operation again in 64 bits, for an assertion that counts only where Triton debugs. And it
    puts its own functions into `triton.language` for each call of a device function, where the launch has done so.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder
    builder.options = replace(builder.options, sanitize_overflow=builder.options.debug)
    patch, run = interpreter._patch_lang, interpreter.GridExecutor.__call__
    patched: set[int] = set()

    def patched_once(function: Callable) -> Any:
        modules = {id(module) for module in function.__globals__.values() if module is tl or module is tl.core}
        if modules and modules <= patched:
            return interpreter._LangPatchScope()
        patched.update(modules)
        return patch(function)

    def launched(self: Any, *args: Any, **kwargs: Any) -> None:
        patched.clear()  # the end of a launch takes its functions back
        run(self, *args, **kwargs)

    interpreter._patch_lang, interpreter.GridExecutor.__call__ = patched_once, launched


class MemoryOutside(Exception):
    """A kernel reads or writes memory of none of the tensors that its launch was given."""


def confine_kernels() -> None:
    """Let an interpreted kernel reach the memory of its arguments and no other.

    The interpreter dereferences whatever address a kernel computes, and on a CPU that is all memory of the process: the
    inputs of other calls, this program's own objects. A launch may touch the storages of its tensors. Any other access
    that its mask lets through raises MemoryOutside, and the launch fails. Call it once.
    """
    from triton.runtime import interpreter

    reach = _Reach()
    executor, builder = interpreter.GridExecutor, interpreter.InterpreterBuilder
    convert, run = executor._init_args_hst, executor.__call__
    load, store = builder.create_masked_load, builder.create_masked_store
    exchange, update = builder.create_atomic_cas, builder.create_atomic_rmw

    def converted(self: Any, args: Sequence, kwargs: dict) -> tuple:
        host = convert(self, args, kwargs)
        reach.set(list(_tensors([*host[0], *host[1].values()])))
        return host

    def launched(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            run(self, *args, **kwargs)
        finally:
            reach.set(())

    def checked_load(self: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        reach.check(pointers, mask, "reads")
        return load(self, pointers, mask, *rest)

    def checked_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        reach.check(pointers, mask, "writes")
        return store(self, pointers, value, mask, *rest)

    def checked_exchange(self: Any, pointers: Any, *rest: Any) -> Any:
        reach.check(pointers, None, "writes")
        return exchange(self, pointers, *rest)

    def checked_update(self: Any, operation: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        reach.check(pointers, mask, "writes")
        return update(self, operation, pointers, value, mask, *rest)

    executor._init_args_hst, executor.__call__ = converted, launched
    builder.create_masked_load, builder.create_masked_store = checked_load, checked_store
    builder.create_atomic_cas, builder.create_atomic_rmw = checked_exchange, checked_update


class _Reach:
    """The memory that the kernel under way may touch, as addresses [start, end)."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []

    def set(self, tensors: Sequence[torch.Tensor]) -> None:
        storages = [tensor.untyped_storage() for tensor in tensors]
        self._spans = sorted({(s.data_ptr(), s.data_ptr() + s.nbytes()) for s in storages})

    def check(self, pointers: Any, mask: Any, does: str) -> None:
        import numpy as np

        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        outside = np.ones_like(pointers.data, dtype=bool)
        for start, end in self._spans:
            if end - start >= size:
                outside &= (pointers.data < start) | (pointers.data > end - size)
        if (outside if mask is None else outside & mask.data).any():
            raise MemoryOutside(f"memory_outside: a kernel {does} memory of none of the tensors that it was given")


def _tensors(values: Sequence) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, tuple):
            yield from _tensors(value)
        elif isinstance(value, torch.Tensor):
            yield value
        elif hasattr(value, "base"):  # a tensor's descriptor, or the wrapper that `reinterpret` makes
            yield from _tensors((value.base,))
