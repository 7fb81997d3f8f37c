"""What Triton lacks where there is no GPU. Triton is imported late: eager's child does without its interpreter."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from passbench.child.interpreter.interpreted_libdevice import lend_libdevice
from passbench.child.interpreter.interpreted_reduce import reduce_in_pairs
from passbench.child.interpreter.spared_work import spare_idle_work


def compute_as_a_gpu() -> None:
    """Have Triton's interpreter compute as a GPU does, and no slower than it must. Call it once."""
    spare_idle_work()
    keep_truths_of_scalars()
    round_bfloat16_to_nearest()
    multiply_and_add_at_once()
    reduce_in_pairs()
    lend_libdevice()


def untimed_autotuning() -> None:
    """Without a GPU Triton has no benchmarker: each configuration is tried once, and the first one kept."""
    from triton.runtime.autotuner import Autotuner

    def try_once(kernel_call: Callable, quantiles: tuple[float, ...]) -> list[float]:
        kernel_call()
        return [1.0 for _ in quantiles]

    Autotuner.do_bench = property(lambda self: try_once)


def round_bfloat16_to_nearest() -> None:
    """The interpreter truncates float32 to bfloat16 where a GPU rounds to nearest even; this makes it round.

    Integers and float64 become float32 first, as on a GPU: the interpreter takes their bits for those of a bfloat16.
    Arithmetic is done in float32 and rounded, as on a GPU: the interpreter computes with the bits as whole numbers.
    """
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    truncating = interpreter.InterpreterBuilder.cast_impl

    def cast_impl(self, src, dst_type):
        given = src.dtype.scalar
        if given == tl.bfloat16 and dst_type.scalar == tl.float32:
            return interpreter.TensorHandle((src.data.astype(np.uint32) << 16).view(np.float32), tl.float32)
        numbers = given.is_int() or given in (tl.float16, tl.float32, tl.float64)
        if dst_type.scalar != tl.bfloat16 or not numbers:
            return truncating(self, src, dst_type)
        single = np.ascontiguousarray(src.data).astype(np.float32)
        bits = single.view(np.uint32).astype(np.uint64)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        data = np.where(np.isnan(single), 0x7FC0, rounded).astype(np.uint16)
        return interpreter.TensorHandle(data, dst_type.scalar)

    interpreter.InterpreterBuilder.cast_impl = cast_impl
    for name in ("binary_op", "unary_op", "create_clampf", "create_fma", "create_dot"):
        _compute_in_single(name)


def _compute_in_single(name: str) -> None:
    """Let a method of the interpreter, which computes, have float32 in place of bfloat16. What it returns is rounded
    where the last value that it gets, which has the type of the result, is a bfloat16."""
    import triton.language as tl
    from triton.runtime import interpreter

    method = getattr(interpreter.InterpreterBuilder, name)

    def compute(self, *given):
        values = [v for v in given if isinstance(v, interpreter.TensorHandle)]
        if not any(v.dtype.scalar == tl.bfloat16 for v in values):
            return method(self, *given)
        single = {id(v): self.cast_impl(v, tl.float32) for v in values if v.dtype.scalar == tl.bfloat16}
        found = method(self, *(single.get(id(v), v) for v in given))
        compares = found.data.dtype == bool
        return found if compares or values[-1].dtype.scalar != tl.bfloat16 else self.cast_impl(found, tl.bfloat16)

    setattr(interpreter.InterpreterBuilder, name, compute)


def keep_truths_of_scalars() -> None:
    """Where the interpreter compares two single floats and repeats the result, it has a block of floats, and `&` of it
    and another comparison fails. This makes it a block of booleans, as on a GPU."""
    import numpy as np
    from triton.runtime import interpreter

    with_floats = interpreter.InterpreterBuilder.create_splat

    def create_splat(self, ret_ty, arg):
        if arg.data.dtype != bool:
            return with_floats(self, ret_ty, arg)
        return interpreter.TensorHandle(np.full(tuple(ret_ty.shape), arg.data.item()), arg.dtype)

    interpreter.InterpreterBuilder.create_splat = create_splat


def multiply_and_add_at_once() -> None:
    """The interpreter's `tl.fma` rounds a product before it adds, where a GPU rounds the sum alone. This makes it do so
    in float32, except where rounding to double precision first makes a tie."""
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    rounding_twice = interpreter.InterpreterBuilder.create_fma

    def create_fma(self, x, y, z):
        if z.dtype.scalar != tl.float32:
            return rounding_twice(self, x, y, z)
        wide = x.data.astype(np.float64) * y.data + z.data
        return interpreter.TensorHandle(wide.astype(np.float32), tl.float32)

    interpreter.InterpreterBuilder.create_fma = create_fma


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

    def checked_load(self: Any, pointers: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        reach.check(pointers, mask, "reads")
        return load(self, pointers, mask, *rest, **named)

    def checked_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        reach.check(pointers, mask, "writes")
        return store(self, pointers, value, mask, *rest, **named)

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
