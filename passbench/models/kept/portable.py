"""What a Python object is, as text that is the same in every process: a function by its code, a class by its members.

Dynamo's guards compare many objects by identity, which says nothing to another process.
"""

import collections
import enum
import functools
import hashlib
import re
import types
from collections.abc import Iterable, Mapping
from typing import Any

import torch

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
_TORCH = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)
_BUILTIN = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
_LISTS = (list, tuple, collections.deque)
_PASSED_OVER = frozenset(
    "__doc__ __annotations__ __annotate__ __annotate_func__ __annotations_cache__ __dict__ __weakref__ __module__ "
    "__abstractmethods__ _abc_impl __parameters__ __orig_bases__ __slotnames__ __firstlineno__ "
    "__static_attributes__ _torchdynamo_wrapper_id smart_apply".split()
)
"""Members of classes and functions that say nothing of what their code does, or are filled in later: transformers gives
torch.nn.Module a `smart_apply` when it first initialises a model."""
_MOST_DEEP = 8
"""Containers within containers that are looked into."""


class Portable:
    """Texts of objects, and `codes`: digests of all code that a function or class which was looked at holds.

    It keeps the objects alive, since it knows them by their ids.
    """

    def __init__(self) -> None:
        self.codes: set[str] = set()
        self._known: dict[int, str] = {}
        self._alive: list[Any] = []

    def text(self, value: Any, depth: int = 0) -> str:
        """What the value is. Of an object of another kind its class and the names of its attributes; what they hold is
        not looked at."""
        if isinstance(value, _PLAIN):
            return f"{type(value).__name__} {value!r}" if type(value) in _PLAIN else self._object(value)
        if isinstance(value, _TORCH):
            return f"{type(value).__name__} {value}"
        if isinstance(value, torch.Tensor):
            return tensor_text(value)
        if isinstance(value, types.ModuleType):
            return f"module {value.__name__}"
        if isinstance(value, types.CodeType):
            return f"code {self.code(value)}"
        if isinstance(value, types.FunctionType):
            return f"function {value.__module__}.{value.__qualname__} {self._remembered(value, self._function)}"
        if isinstance(value, type):
            return f"class {value.__module__}.{value.__qualname__} {self._remembered(value, self._class)}"
        if isinstance(value, _BUILTIN):
            owner = getattr(value, "__objclass__", None) or getattr(value, "__module__", "")
            return f"built in {getattr(owner, '__qualname__', owner)}.{value.__qualname__}"
        if depth > _MOST_DEEP:
            return f"deep {type(value).__qualname__}"
        return self._composed(value, depth + 1)

    def _composed(self, value: Any, depth: int) -> str:
        if isinstance(value, types.MethodType):
            return f"method {self.text(value.__func__)} of {self.text(type(value.__self__))}"
        if isinstance(value, staticmethod | classmethod):
            return f"{type(value).__name__} {self.text(value.__func__, depth)}"
        if isinstance(value, property):
            return f"property {[self.text(each, depth) for each in (value.fget, value.fset, value.fdel)]}"
        if isinstance(value, functools.partial):
            inside = [value.func, value.args, value.keywords]
            return f"partial {[self.text(each, depth) for each in inside]}"
        if isinstance(value, enum.Enum):
            return f"{self.text(type(value))} {value.name}"
        if isinstance(value, re.Pattern):
            return f"pattern {value.pattern!r} {value.flags}"
        if isinstance(value, types.CellType):
            return f"cell {self._cell(value, depth)}"
        if isinstance(value, Mapping):
            return f"{self._object(value)} {[self._shallow(key) for key in value]}"
        if isinstance(value, _LISTS):
            return f"{self._object(value)} {[self._shallow(each, depth) for each in value]}"
        if isinstance(value, set | frozenset):
            return f"{self._object(value)} {sorted(self._shallow(each, depth) for each in value)}"
        wrapped = getattr(value, "__wrapped__", None)
        if isinstance(wrapped, types.FunctionType) and type(value).__module__ == "functools":
            return f"{type(value).__qualname__} {self.text(wrapped)}"
        return self._object(value)

    def _shallow(self, value: Any, depth: int = 1) -> str:
        if isinstance(value, (*_PLAIN, *_TORCH, *_LISTS, types.FunctionType, type, set, frozenset)):
            return self.text(value, depth)
        return type(value).__qualname__

    def _object(self, value: Any) -> str:
        own = getattr(value, "__dict__", None)
        names = sorted(name for name in own if isinstance(name, str)) if isinstance(own, dict) else []
        plain = f" {value!r}" if isinstance(value, _PLAIN) else ""
        return f"{self.text(type(value))}{plain} {names}"

    def _cell(self, cell: types.CellType, depth: int = 0) -> str:
        try:
            value = cell.cell_contents
        except ValueError:
            return "empty"
        if isinstance(value, type):  # that of a method, as a rule; dynamo guards what it reads of a cell
            return f"class {value.__module__}.{value.__qualname__}"
        return self.text(value, depth)

    def _remembered(self, value: Any, digest_of: Any) -> str:
        known = self._known.get(id(value))
        if known is None:
            self._alive.append(value)
            self._known[id(value)] = "itself"  # a function that its own closure holds
            known = self._known[id(value)] = digest_of(value)
        return known

    def _function(self, function: types.FunctionType) -> str:
        cells = [self._cell(cell) for cell in function.__closure__ or ()]
        said = {name: self._shallow(value) for name, value in vars(function).items() if name not in _PASSED_OVER}
        given = [self.text(function.__defaults__), said]
        named = {name: self.text(value) for name, value in (function.__kwdefaults__ or {}).items()}
        return _digest([self.code(function.__code__), *given, named, cells])

    def _class(self, kind: type) -> str:
        bases = [each for each in kind.__mro__[1:] if each is not object]
        said: list[Any] = [self.text(type(kind)) if type(kind) is not type else "", [self.text(each) for each in bases]]
        if kind.__flags__ & _HEAP:
            said += sorted((name, self._member(value)) for name, value in vars(kind).items() if _tells(name))
        return _digest(said)

    def _member(self, value: Any) -> str:
        if isinstance(value, (*_PLAIN, *_TORCH, *_BUILTIN, types.FunctionType, staticmethod, classmethod, property)):
            return self.text(value, 1)
        if isinstance(value, type):
            return f"class {value.__module__}.{value.__qualname__}"
        if isinstance(value, tuple | list | frozenset):
            return f"{type(value).__name__} {list(map(self._shallow, _ordered(value)))}"
        wrapped = getattr(value, "__wrapped__", None) or getattr(value, "func", None)
        inside = self.text(wrapped, 1) if isinstance(wrapped, types.FunctionType) else ""
        return f"{type(value).__module__}.{type(value).__qualname__} {inside}"

    def code(self, code: types.CodeType) -> str:
        """The digest of what a function's code does; where its file lies and on which lines is no part of it."""
        return self._remembered(code, self._code)

    def _code(self, code: types.CodeType) -> str:
        constants = [
            self.code(each) if isinstance(each, types.CodeType) else _constant(each) for each in code.co_consts
        ]
        names = [code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags]
        counts = [code.co_argcount, code.co_kwonlyargcount, code.co_posonlyargcount]
        found = _digest([code.co_code.hex(), constants, *names, *counts, getattr(code, "co_exceptiontable", b"").hex()])
        self.codes.add(found)
        return found


_HEAP = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: a class that Python made; others are part of Python or of a library in C."""


def _tells(name: str) -> bool:
    return name not in _PASSED_OVER


def _ordered(values: Iterable[Any]) -> list[Any]:
    return sorted(values, key=repr) if isinstance(values, frozenset) else list(values)


def _constant(value: Any) -> str:
    if isinstance(value, frozenset):
        return f"frozenset {sorted(map(_constant, value))}"
    if isinstance(value, tuple):
        return f"tuple {[_constant(each) for each in value]}"
    return f"{type(value).__name__} {value!r}"


def tensor_text(x: torch.Tensor) -> str:
    """All that a capture may take from a tensor: everything but its values and where they lie."""
    kind = f"{type(x).__module__}.{type(x).__qualname__}"
    if x.layout != torch.strided or x.is_nested:
        return f"{kind} {x.dtype} {x.layout} nested={x.is_nested} {x.device}"
    flags = [x.requires_grad, x.is_leaf, x.is_conj(), x.is_neg(), x.is_inference()]
    place = [tuple(x.shape), x.stride(), x.storage_offset(), str(x.device)]
    names = sorted(name for name in vars(x) if name != "_dynamo_static_input_type")  # a capture marks parameters so
    return f"{kind} {x.dtype} {place} {flags} {torch._C._dispatch_keys(x)} {names}"


def _digest(said: Any) -> str:
    return hashlib.sha256(repr(said).encode("utf-8", "backslashreplace")).hexdigest()[:32]
