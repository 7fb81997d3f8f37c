"""The allowlist of what a stored graph may call: qualified name ↔ callable.

A graph record names its targets; only names in this table become callables, by table lookup and never by walking
attributes that the record chooses. What reads or writes files, wraps raw memory, trusts indices unchecked (sparse
tensors, `segment_reduce`, `ctc_loss`), takes packed or quantised weights, or calls back into Python is left out.
"""

import builtins
import functools
import math
import operator
import re
from collections.abc import Callable

import torch
import torch.nn.functional as F

from storage.errors import PassNetError


class TargetError(PassNetError):
    """A target outside the allowlist, or unknown to the installed torch."""


_DENIED_FUNCTIONS = frozenset(
    """from_file frombuffer boolean_dispatch handle_torch_function has_torch_function has_torch_function_unary
    has_torch_function_variadic assert_int_or_pair from_numpy resize_as_ resize_as_sparse_ segment_reduce ctc_loss
    choose_qparams_optimized empty_quantized dsmm hsmm hspmm smm saddmm spmm sspaddmm save load set_data""".split()
)
# Back ends' own entry points, sparse and quantised tensors: their kernels trust what they are given.
_DENIED_PREFIXES = re.compile(
    r"_*(cudnn|miopen|mkldnn|to_mkldnn|fbgemm|quantized|quantize_|sparse|to_sparse|nested|ctc_loss|segment_reduce"
    r"|cslt|coalesce|q_|is_vulkan|reshape_alias|sparse_|efficientzero|thnn_fused|weight_int|make_per_)\w*"
)
_DENIED_METHODS = frozenset(
    """apply_ as_subclass backward const_data_ptr data_ptr from_file ipu is_shared map2_ map_ module_load mtia new numpy
    pin_memory record_stream register_hook register_post_accumulate_grad_hook reinforce resize_ resize_as_
    resize_as_sparse_ retain_grad set_ share_memory_ storage storage_type tolist untyped_storage xpu""".split()
)
AUGMENTED = frozenset("iadd iand ifloordiv ilshift imatmul imod imul ior ipow irshift isub itruediv ixor".split())
"""Operators that assign to their first operand; rendered as statements."""
_OPERATORS = """abs add and_ concat contains eq floordiv ge getitem gt iadd iand ifloordiv ilshift imatmul imod imul
    index invert ior ipow irshift is_ is_not isub itruediv ixor le lshift lt matmul mod mul ne neg not_ or_ pos pow
    rshift setitem sub truediv truth xor""".split()
_BUILTINS = "abs bool float int len max min pow round sum".split()
_CONTEXTS = {  # entries and exits of autocast regions are nodes of dynamo's graphs
    "torch.amp.autocast_mode._enter_autocast": torch.amp.autocast_mode._enter_autocast,
    "torch.amp.autocast_mode._exit_autocast": torch.amp.autocast_mode._exit_autocast,
}
SYMBOLIC = tuple(f"torch.sym_{n}" for n in "float int ite max min not sqrt sum".split())
"""Arithmetic on sizes that dynamo records by torch's own names; on Python's numbers they are plain functions."""
_PRIVATE = ["_weight_norm"]  # what torch.nn.utils.parametrizations.weight_norm computes
GETATTR = "builtins.getattr"
ATTRIBUTES = frozenset("T mT H mH real imag shape dtype device ndim data is_cuda requires_grad layout itemsize".split())
"""Attributes that a stored `getattr` may read."""

# Types and string arguments that an ATen overload may have: no files, storages, streams or containers of anything.
_ATEN_TYPES = re.compile(r"(Optional\[|List\[)*(Tensor|int|float|bool|complex|number|Device|SymInt|Generator)\]*")
_ATEN_STRINGS = frozenset(
    """norm reduce rounding_mode mode approximate interpolation side padding ord indexing equation pad_mode UPLO driver
    padding_side activation assert_msg algorithm""".split()
)
_ATEN = re.compile(r"torch\.ops\.(aten|prims)\.([a-zA-Z_]\w*)\.([a-zA-Z_]\w*)")


@functools.cache
def functions() -> dict[str, Callable]:
    """Qualified name → callable, preferred names first where a callable has several."""
    table: dict[str, Callable] = {}

    def scan(prefix: str, module: object, names: list[str]) -> None:
        for name in names:
            value = getattr(module, name, None)
            if callable(value) and not isinstance(value, type) and not _is_denied(name):
                table.setdefault(f"{prefix}.{name}", value)

    def public(module: object) -> list[str]:
        return sorted(n for n in dir(module) if not n.startswith("_"))

    # A typing alias that functional.py imports is callable too; functions say where they come from.
    own = [n for n in public(F) if _is_function(getattr(F, n))]
    scan("torch.nn.functional", F, own)
    scan("torch", torch, public(torch._C._VariableFunctions))
    scan("torch", torch, sorted(torch.functional.__all__))
    scan("torch", torch, _PRIVATE)
    scan("torch", torch, [name.removeprefix("torch.") for name in SYMBOLIC])
    for namespace in ("special", "linalg", "fft"):
        module = getattr(torch, namespace)
        scan(f"torch.{namespace}", module, [n for n in public(module) if _is_function(getattr(module, n))])
    scan("torch._C._nn", torch._C._nn, public(torch._C._nn))
    scan("operator", operator, _OPERATORS)
    scan("math", math, public(math))
    scan("builtins", builtins, _BUILTINS)
    table[GETATTR] = getattr
    table.update(_CONTEXTS)
    return table


def _is_function(value: object) -> bool:
    return callable(value) and not isinstance(value, type) and type(value).__module__ != "typing"


@functools.cache
def _names() -> dict[int, str]:
    names: dict[int, str] = {}
    for name, function in functions().items():
        names.setdefault(id(function), name)
    return names


_PUBLIC = {
    "torch": torch, "torch.functional": torch.functional, "torch.nn.functional": F, "torch.special": torch.special,
    "torch.linalg": torch.linalg, "torch.fft": torch.fft, "operator": operator, "math": math,
}  # fmt: skip
_ALIAS = re.compile(r"[Aa]lias (?:for|of) :(?:func|meth):`~?(?:torch\.)?(Tensor\.|)([\w.]+)`")


@functools.cache
def spellings() -> dict[str, str]:
    """Public dotted names of allowed functions → the names under which they are stored.

    `torch.functional.einsum` → `torch.einsum`: both are one object. Names that are other objects, such as
    `torch.clip` for `torch.clamp`, keep their own; see `documented_aliases`.
    """
    found = {name: name_of(function) for name, function in functions().items()}
    for prefix, module in _PUBLIC.items():
        for name, value in vars(module).items():
            if not name.startswith("_") and id(value) in _names():
                found.setdefault(f"{prefix}.{name}", _names()[id(value)])
    return found


@functools.cache
def documented_aliases() -> dict[str, str]:
    """Functions, and methods as `.name`, → what torch's documentation says that they are another name of.

    `torch.clip` → `torch.clamp`, `.absolute` → `.abs`. Chains are followed to their end.
    """
    table: dict[str, str] = {}
    for function in functions().values():
        match = _ALIAS.search(getattr(function, "__doc__", None) or "")
        target = match and name_of(functions().get(f"torch.{match[2]}", function))
        if target and target != name_of(function):
            table[name_of(function)] = target
    for name in methods():
        match = _ALIAS.search(getattr(torch.Tensor, name).__doc__ or "")
        if match and match[1] and match[2] in methods() and match[2] != name:
            table[f".{name}"] = f".{match[2]}"
    ends = {}
    for name in table:
        end, seen = name, set()
        while end in table and end not in seen:
            seen.add(end)
            end = table[end]
        if end != name:
            ends[name] = end
    return ends


@functools.cache
def methods() -> frozenset[str]:
    """Names of tensor methods that a stored graph may call."""
    return frozenset(
        name
        for name in dir(torch.Tensor)
        if not name.startswith("_") and not _is_denied(name) and callable(getattr(torch.Tensor, name))
    )


def _aten_match(name: str) -> re.Match | None:
    match = _ATEN.fullmatch(name)
    return match if match and not _is_denied(match[2]) else None


def _is_denied(name: str) -> bool:
    return name in _DENIED_FUNCTIONS or name in _DENIED_METHODS or _DENIED_PREFIXES.fullmatch(name) is not None


def _is_safe_overload(overload: torch._ops.OpOverload) -> bool:
    values = [*overload._schema.arguments, *overload._schema.returns]
    return any("Tensor" in str(value.type) for value in values) and all(
        _ATEN_TYPES.fullmatch(str(value.type)) or ("str" in str(value.type) and value.name in _ATEN_STRINGS)
        for value in values
    )


def name_of(target: Callable) -> str:
    """The qualified name under which `target` is stored. Raises TargetError if it is not in the allowlist."""
    if isinstance(target, torch._ops.OpOverload):
        name = f"torch.ops.{target}"
        if _aten_match(name) and _is_safe_overload(target):
            return name
    name = _names().get(id(target))
    if name is None:
        described = f"{getattr(target, '__module__', '?')}.{getattr(target, '__qualname__', repr(target))}"
        raise TargetError(f"the graph calls {described}, which is outside the allowlist of storage/graph/targets.py")
    return name


def resolve(name: str) -> Callable:
    """The callable stored as `name`. Raises TargetError if it is not in the allowlist or this torch lacks it."""
    function = functions().get(name)
    if function is not None:
        return function
    match = _aten_match(name)
    if match:
        packet = getattr(getattr(torch.ops, match[1]), match[2], None)
        overload = getattr(packet, match[3], None) if packet is not None else None
        if isinstance(overload, torch._ops.OpOverload) and _is_safe_overload(overload):
            return overload
    raise TargetError(f"target {name!r} is not in the allowlist, or torch {torch.__version__} does not have it")


def check_method(name: str) -> str:
    """`name` itself if it is an allowed tensor method. Raises TargetError otherwise."""
    if name not in methods():
        raise TargetError(f"tensor method {name!r} is not in the allowlist of storage/graph/targets.py")
    return name
