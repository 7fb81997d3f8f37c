"""What Triton lacks where there is no GPU. Triton is imported late: eager's child does without its interpreter."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from passbench.child.interpreter.interpreted_libdevice import lend_libdevice
from passbench.child.interpreter.interpreted_reduce import reduce_in_pairs


def compute_as_a_gpu() -> None:
    """Have Triton's interpreter compute as a GPU does, and no slower than it must. Call it once."""
    spare_idle_work()
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


def spare_idle_work() -> None:
    """Leave out what the interpreter does without effect, two thirds of its time.

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
    _spare_types(tl.core)
    numpy_type, by_name = interpreter._get_np_dtype, {}

    def numpy_type_once(triton_type: Any) -> Any:
        found = by_name.get(triton_type.name)
        return by_name.setdefault(triton_type.name, numpy_type(triton_type)) if found is None else found

    interpreter._get_np_dtype = numpy_type_once


def _spare_types(core: Any) -> None:
    """Leave out what Triton's compiler alone needs of shapes, half of what else an interpreted operation costs.

    Each operation makes several types and tensors. For each of these a shape is made twice, of numbers and of
    constants, and each shape has a type with a name. Here a shape of a type is made once, and a tuple's type when asked
    for.
    """
    make_type, make_tuple = core.block_type.__init__, core.tuple.__init__
    shapes: dict[tuple[int, ...], tuple] = {}
    constants: dict[tuple[int, ...], tuple] = {}

    def block(self: Any, element_ty: Any, shape: Any) -> None:
        numbers = tuple([n.value if isinstance(n, core.constexpr) else n for n in shape])
        if not all(type(n) is int for n in numbers):
            make_type(self, element_ty, shape)  # which says what is wrong with it
        elif numbers not in shapes:
            make_type(self, element_ty, shape)
            shapes[numbers] = self.shape, self.numel, str(self.shape)
        else:
            self.element_ty = element_ty
            self.shape, self.numel, text = shapes[numbers]
            self.name = f"<{text}, {element_ty}>"

    def tensor(self: Any, handle: Any, type: Any) -> None:
        numbers = tuple(type.shape) if type.is_block() else ()
        if numbers not in constants:
            shape = core.tuple([core.constexpr(n) for n in numbers])
            constants[numbers] = shape, core.constexpr(math.prod(numbers))
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = constants[numbers]

    def values(self: Any, args: Sequence, type: Any = None) -> None:
        if type is None:
            self.values = list(args)
        else:
            make_tuple(self, args, type)

    def type_of(self: Any) -> Any:
        if "_type" not in self.__dict__:
            self._type = core._type_for_tuple_values(self.values)
        return self._type

    core.block_type.__init__, core.tensor.__init__, core.tuple.__init__ = block, tensor, values
    core.tuple.type = property(type_of, lambda self, kind: setattr(self, "_type", kind))


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
