"""Members that objects of torch, Triton and the standard library have, which a pass can hold. A class of a pass with a
member of such a name would allow the name on those objects, too."""

import builtins
import collections
import contextlib
import dataclasses
import dis
import enum
import functools
import itertools
import logging
import sys
import threading
import types
import typing
from collections.abc import Iterator
from types import CodeType, FunctionType

import numpy as np
import torch
import triton
import triton.language as tl
from torch._ops import OpOverload, OpOverloadPacket
from triton.compiler import CompiledKernel
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from passbench.launch import Launch, LaunchPlan, PlanTable
from passbench.policy import allowlists as names
from passbench.policy import operators
from passbench.policy.scopes import ValueKind

_DATA = (torch.dtype, torch.device, str, dict, list, tuple, int, float)
_FUNCTIONS = (
    JITFunction, InterpretedFunction, Autotuner, Heuristics, triton.Config, Launch, LaunchPlan, PlanTable, OpOverload,
    OpOverloadPacket, FunctionType,
)  # fmt: skip
"""What is called, and what holds that: `passbench.policy.flow` follows each, or takes it for anything."""
_RETURNED = (
    torch.Size, torch.finfo, torch.iinfo, torch.no_grad, torch.inference_mode, torch.cuda.device, torch.cuda.device_of,
    getattr(torch._C, "_CudaDeviceProperties", object), tl.constexpr, typing.TypeVar,
    type(threading.Lock()), type(threading.RLock()),
)  # fmt: skip
"""What else functions return that host code may call."""
_OF_NUMPY = (np.ndarray, np.int64, np.float64)
"""What `numpy.prod` returns, and what such a number leads to: the array that it is a view of."""
_WITH_FIELDS = (Autotuner, Heuristics, OpOverload, OpOverloadPacket, triton.Config)
"""Classes whose instances have attributes, such as the times of configurations, that the class does not show."""
_MODULES = (builtins, collections, contextlib, dataclasses, enum, functools, itertools, logging, types)
"""Modules whose objects host code can get hold of: generators, exceptions, loggers, partial functions."""
_INSTANCES = (
    logging.getLogger(), logging.getLogger().manager, logging.StreamHandler(), logging.Formatter(),
    logging.makeLogRecord({}), contextlib.nullcontext(), functools.partial(int), collections.ChainMap(), {}.keys(),
)  # fmt: skip
"""Objects with attributes that their classes do not show."""
_PLAIN_DATA = frozenset(
    """start stop step end offset level total key order code text reason path strides flags tags namespace op default
    configs cache _cache mode base""".split()
)
"""Attributes of theirs that are numbers or text, and lead nowhere."""
_CHOSEN_BY_PEOPLE = frozenset("kind scalar fill".split())
"""Members of Triton's types and of arrays that lead nowhere, and names that people give to fields."""
_SAME_EVERYWHERE = (
    names.TENSOR_ATTRIBUTES | names.SCALAR_ATTRIBUTES | names.CONFIG_ATTRIBUTES | names.METADATA_METHODS
    | names.VIEW_METHODS | {"get"}
)  # fmt: skip
"""Names that host code may use on any object anyway."""

_ASKED_FOR = frozenset("data_ptr tma_desc_cpu_ptr cache_key".split())
"""What Triton asks any argument of a launch for: what has it is a tensor to Triton, a descriptor or a kernel."""

_OF_MEMORY = frozenset(
    """apply_ as_subclass const_data_ptr from_file grad_fn map2_ map_ module_load numpy record_stream register_hook
    register_post_accumulate_grad_hook set_ share_memory_ storage tolist untyped_storage""".split()
)
"""Members of tensors that call functions, read files or values, or lead to memory: a field of such a name is read off
what is surely an instance of the pass's."""


@functools.cache
def _taken() -> frozenset[str]:
    """Attributes of objects that a pass can hold. A class with such a member would allow the name on them, too."""
    found = {name for kind in _WITH_FIELDS for name in _set_by(kind)} | set(vars(torch.ops.aten.relu.default))
    found |= {name for kind in _FUNCTIONS for name in dir(kind)}
    found |= set(vars(InterpretedFunction(_nothing))) | _of_contexts()
    if not issubclass(JITFunction, InterpretedFunction):
        found |= set(vars(JITFunction(_nothing))) - {"kernel"}  # which is None there
    return (frozenset(found) | _of_plain_objects()) - _SAME_EVERYWHERE


@functools.cache
def _of_plain_objects() -> frozenset[str]:
    """The same of objects that are no functions, kernels or operators, nor hold such."""
    kinds = {kind for module in _MODULES for kind in vars(module).values() if isinstance(kind, type)}
    found = {name for kind in (*kinds, *_INSTANCES) for name in dir(kind)} - _PLAIN_DATA
    found |= {name for kind in _DATA for name in dir(kind)}
    found |= {name for kind in _OF_NUMPY for name in dir(kind)} - {*dir(torch.Tensor)} - _PLAIN_DATA - _CHOSEN_BY_PEOPLE
    found |= {name for kind in _RETURNED for name in (*dir(kind), *_set_by(kind))} - _PLAIN_DATA
    return frozenset(found | {*_of_named_values()} - _PLAIN_DATA - _CHOSEN_BY_PEOPLE)


def is_of_plain_objects(name: str) -> bool:
    """Whether tensors, numbers, texts, containers or other objects of libraries have a member of this name that are no
    functions, kernels or operators."""
    return hasattr(torch.Tensor, name) or name in _of_plain_objects() or name in _SAME_EVERYWHERE


def _of_named_values() -> Iterator[str]:
    """Members of what host code may name and keep that is no class: dtypes, versions, forms of `typing`, and types made
    of such a form, as `typing.Optional[int]` is."""
    for dotted in names.HOST_VALUES | names.TYPE_FORMS:
        library, *path = dotted.split(".")
        value = functools.reduce(lambda found, name: getattr(found, name, None), path, sys.modules.get(library))
        if not isinstance(value, type):
            yield from {*dir(value)} - {*dir(typing.get_origin(value))}
            with contextlib.suppress(TypeError):  # of a form that takes other parameters, or of no form
                yield from {*dir(value[int])} - {*dir(typing.get_origin(value[int]))}


@functools.cache
def fields_of_tensors_too() -> frozenset[str]:
    """Public names that tensors and compiled kernels have, and nothing else that a pass can hold. A class may have
    fields of these names: what the policy takes for a tensor has none of them, and a launch's result is one to it."""
    own = {*dir(torch.Tensor), *dir(CompiledKernel), *CompiledKernel.__init__.__code__.co_names}
    known = _taken() | _SAME_EVERYWHERE | names.VIEW_ATTRIBUTES | _used_on_anything() | _OF_MEMORY
    return frozenset(name for name in own - known if not name.startswith("_"))


@functools.cache
def does_more(name: str) -> bool:
    """Whether tensors have a method of this name that does more than compute: reads, writes, draws or tells of memory.
    What is read off a value is not followed to where it is called."""
    if not callable(getattr(torch.Tensor, name, None)):
        return False
    if not operators.is_method(name):
        return True
    call = operators.library_call(f".{name}", [], {})
    return call.reading or call.random or operators.writes_always(f".{name}")


@functools.cache
def takes_nothing(name: str) -> bool:
    """Whether tensors have a method of this name that computes and is given nothing, such as `cos`: whoever calls it
    hands it no tensor as an index."""
    packet = getattr(torch.ops.aten, name, None)
    if does_more(name) or packet is None or not callable(getattr(torch.Tensor, name, None)):
        return False
    schemas = [getattr(packet, one)._schema for one in packet.overloads()]
    of_tensors = [s.arguments for s in schemas if s.arguments and str(s.arguments[0].type) == "Tensor"]
    return bool(of_tensors) and all(a.name in ("self", "out") for arguments in of_tensors for a in arguments)


def is_taken(name: str, *, field: bool) -> bool:
    """Whether a class may not have a member of this name, a `field` or a method, since other objects have it."""
    of_tensors = hasattr(torch.Tensor, name) or hasattr(CompiledKernel, name)
    of_tensors |= name in CompiledKernel.__init__.__code__.co_names
    if name in _SAME_EVERYWHERE or name in _ASKED_FOR:
        return name in _ASKED_FOR
    if field and name in names.SIZES:
        return False
    return name in _taken() or (of_tensors and not (field and name in fields_of_tensors_too()))


@functools.cache
def _of_contexts() -> frozenset[str]:
    return frozenset({*dir(torch.autograd.function.BackwardCFunction), *dir(torch.autograd.function.FunctionCtx)})


def is_of_contexts(name: str, kind: ValueKind) -> bool:
    """Whether a pass may not set this attribute of the context of an autograd function to a value of this kind: the
    context has one, or whoever asks any object for it gets no tensor as far as the policy knows."""
    return name in _of_contexts() or (kind.holds_tensors and name in names.READ_OFF_ANYTHING)


def may_be_both(name: str) -> bool:
    """Whether a class of a pass may have a method of this name, though tensors, containers or texts have one, too. What
    is called by such a name is followed as both, instances that are surely the pass's aside. What torch may call with
    its own arguments gets anything. `keys` beside `__getitem__` would make `**x` of an instance call both."""
    return is_usable(name) and name not in _ASKED_FOR | {"keys"} | names.VIEW_ATTRIBUTES - {"values"}


def _used_on_anything() -> frozenset[str]:
    return (
        names.CONTAINER_METHODS | names.STRING_METHODS | names.LOGGING_METHODS | names.NUMBER_METHODS
        | names.CONTEXT_METHODS | {"format"}
    )  # fmt: skip


def _set_by(kind: type) -> Iterator[str]:
    """Attributes that the methods of a class set."""
    waiting: list[CodeType] = [f.__code__ for f in vars(kind).values() if isinstance(f, FunctionType)]
    while waiting:
        code = waiting.pop()
        waiting += [one for one in code.co_consts if isinstance(one, CodeType)]
        yield from (i.argval for i in dis.get_instructions(code) if i.opname == "STORE_ATTR")


def _nothing() -> None:
    """A function whose JIT object shows which attributes such objects have."""


def is_usable(name: str) -> bool:
    """Whether host code, or torch and Triton, may use this name on any object: what it means there is then taken for
    torch's own. A private name is used on instances of the pass alone."""
    if name.startswith("_"):
        return False
    if name in _ASKED_FOR or (hasattr(torch.Tensor, name) and name != "backward"):
        return True
    known = _used_on_anything() | names.VIEW_ATTRIBUTES
    return name in known or operators.is_method(name)
