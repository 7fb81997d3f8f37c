"""What Triton's interpreter does without effect, left out: half of its time.

In a kernel of ours NumPy took a microsecond for an operation on a block, and the interpreter 24 around it; now 12.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import getmembers
from typing import Any

import torch


def spare_idle_work() -> None:
    """Leave these out in the process at hand. Call it once.

    The interpreter works out each integer operation again in 64 bits, for an assertion that counts only where Triton
    debugs. It puts its own functions into `triton.language` for each call of a device function, where the launch has
    done so, and looks for them anew at each launch. It copies the memory of a CPU's tensors onto itself. It reads the
    source of each function twice.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder
    builder.options = replace(builder.options, sanitize_overflow=builder.options.debug)
    _patch_once(interpreter, tl)
    _spare_copies(interpreter.GridExecutor)
    _spare_types(tl.core)
    _spare_conversions(interpreter, tl.core)
    numpy_type, by_name = interpreter._get_np_dtype, {}

    def numpy_type_once(triton_type: Any) -> Any:
        found = by_name.get(triton_type.name)
        return by_name.setdefault(triton_type.name, numpy_type(triton_type)) if found is None else found

    interpreter._get_np_dtype = numpy_type_once
    interpreter.FunctionRewriter._get_jit_fn_file_line = _place


def _place(rewriter: Any) -> tuple[str, int]:
    """The file of a function and the line of its `def`, for messages."""
    import linecache

    code = rewriter.fn.__code__
    line = code.co_firstlineno
    while (text := linecache.getline(code.co_filename, line)) and not text.lstrip().startswith("def "):
        line += 1
    return code.co_filename, line


def _patch_once(interpreter: Any, tl: Any) -> None:
    """Put the interpreter's functions into `triton.language` once a launch, and call them without detours."""
    patch, run = interpreter._patch_lang, interpreter.GridExecutor.__call__
    semantic = interpreter.TritonSemantic(interpreter.interpreter_builder)
    checking = tl.core.load.__code__  # what `builtin` puts around a function
    patched: set[int] = set()
    languages: dict[Callable, frozenset[int]] = {}

    def patched_once(function: Callable) -> Any:
        modules = languages.get(function)
        if modules is None:
            named = function.__globals__.values()
            modules = frozenset(id(module) for module in named if module is tl or module is tl.core)
            languages[function] = modules
        if modules and modules <= patched:
            return interpreter._LangPatchScope()
        patched.update(modules)
        return patch(function)

    def launched(self: Any, *args: Any, **kwargs: Any) -> None:
        patched.clear()  # the end of a launch takes its functions back
        run(self, *args, **kwargs)

    def called_directly(member: Callable) -> Callable:
        inner = member.__wrapped__ if getattr(member, "__code__", None) is checking else member

        def call(*args: Any, **kwargs: Any) -> Any:
            kwargs["_semantic"] = semantic
            return inner(*args, **kwargs)

        return call

    direct = {
        owner: [(name, called_directly(member)) for name, member in getmembers(owner, tl.core.is_builtin)]
        for owner in (tl, tl.core, tl.math, tl.tensor, tl.core.tensor_descriptor_base)
    }

    def patch_members(owner: Any, builder: Any, scope: Any) -> None:
        for name, member in direct[owner]:
            scope.set_attr(owner, name, member)

    interpreter._patch_lang, interpreter.GridExecutor.__call__ = patched_once, launched
    interpreter._patch_builtin = patch_members


def _spare_copies(executor: Any) -> None:
    """Give a kernel its tensors themselves where all are a CPU's."""
    convert, restore = executor._init_args_hst, executor._restore_args_dev

    def stays(value: Any) -> bool:
        if type(value) is torch.Tensor:
            return value.is_cpu
        return not (isinstance(value, tuple) or hasattr(value, "data_ptr") or hasattr(value, "base"))

    def converted(self: Any, given: Sequence, named: Mapping[str, Any]) -> tuple[Sequence, Mapping[str, Any]]:
        if all(map(stays, given)) and all(map(stays, named.values())):
            return given, named
        return convert(self, given, named)

    def restored(self: Any, given: Sequence, host: Sequence, named: Mapping, named_host: Mapping) -> None:
        if host is not given:
            restore(self, given, host, named, named_host)

    executor._init_args_hst, executor._restore_args_dev = converted, restored


def _spare_types(core: Any) -> None:
    """Leave out what Triton's compiler alone needs of shapes.

    Each operation makes several types and tensors. For each of these a shape is made twice, of numbers and of
    constants, and each shape has a type, and each type a name. Here a shape is made once, so that equal shapes of types
    are one object, and names and types of shapes when asked for.
    """
    make_type, make_tuple = core.block_type.__init__, core.tuple.__init__
    shapes: dict[tuple[int, ...], tuple] = {}
    constants: dict[int, tuple] = {}
    others: dict[tuple[int, int], Any] = {}

    def block(self: Any, element_ty: Any, shape: Any) -> None:
        numbers = tuple([n.value if isinstance(n, core.constexpr) else n for n in shape])
        if numbers not in shapes:
            make_type(self, element_ty, shape)
            if not all(type(n) is int for n in numbers):
                return
            ones = core.tuple([core.constexpr(n) for n in numbers])
            shapes[numbers] = self.shape, self.numel
            constants[id(self.shape)] = ones, core.constexpr(math.prod(numbers))
        else:
            self.element_ty = element_ty
            self.shape, self.numel = shapes[numbers]

    def with_element(self: Any, scalar_ty: Any) -> Any:
        key = id(self.shape), id(scalar_ty)
        found = others.get(key)
        if found is None:
            found = core.block_type(scalar_ty, self.shape)
            if found.shape is self.shape:  # which is kept, as is the scalar type with what is found
                others[key] = found
        return found

    scalars = core.tuple([]), core.constexpr(1)

    def tensor(self: Any, handle: Any, type: Any) -> None:
        self.handle, self.type, self.dtype = handle, type, type.scalar
        if not type.is_block():
            self.shape, self.numel = scalars
        elif (known := constants.get(id(type.shape))) is not None:
            self.shape, self.numel = known
        else:
            self.shape = core.tuple([core.constexpr(n) for n in type.shape])
            self.numel = core.constexpr(math.prod(type.shape))

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
    core.block_type.with_element_ty = with_element
    core.block_type.name = property(lambda self: f"<{self.shape}, {self.element_ty}>", lambda self, name: None)
    core.tuple.type = property(type_of, lambda self, kind: setattr(self, "_type", kind))


def _spare_conversions(interpreter: Any, core: Any) -> None:
    """Leave operands of one type and shape as they are, and make a number one of the other operand's type at once."""
    semantic = interpreter.TritonSemantic
    convert, broadcast = semantic.binary_op_type_checking_impl, semantic.broadcast_impl_value
    splat = interpreter.InterpreterBuilder.create_splat
    unwrap, constant, tensor = core._unwrap_if_constexpr, core.constexpr, core.tensor
    whole = {id(core.int32): range(-(2**31), 2**31), id(core.int64): range(-(2**63), 2**63)}
    alike = frozenset(map(id, (core.int1, core.int32, core.int64, core.float32, core.float64)))  # whatever is computed
    plain = frozenset((tensor, int, float, bool, str, type(None)))

    def fits(number: Any, dtype: Any) -> bool:
        if type(number) is int and id(dtype) in whole:
            return number in whole[id(dtype)]
        return type(number) in (int, float) and dtype is core.float32

    def converted(self: Any, lhs: Any, rhs: Any, *how: Any, **named: Any) -> tuple:
        if type(lhs) is tensor and lhs.dtype is getattr(rhs, "dtype", None) and id(lhs.dtype) in alike:
            return broadcasted(self, lhs, rhs)
        if type(lhs) is tensor and fits(rhs, lhs.dtype):
            return broadcasted(self, lhs, self.scalar_constant(rhs, lhs.dtype))
        if type(rhs) is tensor and fits(lhs, rhs.dtype):
            return broadcasted(self, self.scalar_constant(lhs, rhs.dtype), rhs)
        return convert(self, lhs, rhs, *how, **named)

    def broadcasted(self: Any, lhs: Any, rhs: Any) -> tuple:
        left, right = lhs.type, rhs.type
        if left.is_block() and right.is_block():
            return (lhs, rhs) if left.shape is right.shape else broadcast(self, lhs, rhs)
        return spread(self, lhs, left, right), spread(self, rhs, right, left)

    def spread(self: Any, value: Any, own: Any, other: Any) -> Any:
        """A number as a block of another value's shape, if that is a block; a block as it is."""
        if own.is_block() or not other.is_block():
            return value
        block = other.with_element_ty(own.scalar)
        return tensor(self.builder.create_splat(block, value.handle), block)

    def filled(self: Any, block: Any, number: Any) -> Any:
        if isinstance(number.dtype, core.block_type):
            return splat(self, block, number)
        shape = [*block.shape.values] if isinstance(block.shape, core.tuple) else block.shape
        kind = interpreter._get_np_dtype(number.dtype)
        return interpreter.TensorHandle(interpreter.np.full(shape, number.data, dtype=kind), number.dtype.scalar)

    def unwrapped(value: Any) -> Any:
        kind = type(value)
        if kind in plain:
            return value
        return value.value if kind is constant else unwrap(value)

    semantic.binary_op_type_checking_impl, semantic.broadcast_impl_value = converted, broadcasted
    interpreter.InterpreterBuilder.create_splat = filled
    core._unwrap_if_constexpr = unwrapped
