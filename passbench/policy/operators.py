"""Torch's operators in host code: which a pass may call, and what a call does besides computing its result.

Allowed is what a graph record may hold (`storage.graph.targets`) and computes out of place; effects are read off the
call as they are read off a record (`storage.graph.effects`).
"""

import ast
import functools
import inspect
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import FunctionType

import torch

from passbench.policy.nodes import walk
from storage.graph import effects, targets
from storage.graph.record import Op, Ref, refs
from storage.graph.targets import TargetError

READING = frozenset(
    """item _local_scalar_dense tolist numpy cpu equal allclose is_nonzero nonzero argwhere masked_select unique
    unique_consecutive unique_dim unique_dim_consecutive nonzero_numpy bincount dim_order is_set_to""".split()
)
"""Operators whose result, or its shape, follows from the values of a tensor: the host would wait for the device."""

_PRIVATE = frozenset(
    """_adaptive_avg_pool2d _adaptive_avg_pool3d
    _addmm_activation _cdist_forward _conj_physical _convolution _efficient_attention_forward _embedding_bag
    _embedding_bag_forward_only _fft_c2c _fft_c2r _fft_r2c _flash_attention_forward _fused_rms_norm _grouped_mm _int_mm
    _linalg_det _linalg_eigh _linalg_slogdet _linalg_solve_ex _linalg_svd
    _log_softmax _log_softmax_backward_data _native_batch_norm_legit _native_batch_norm_legit_no_training
    _pdist_forward _prelu_kernel _safe_softmax _scaled_dot_product_attention_math _scaled_dot_product_cudnn_attention
    _scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention
    _scaled_dot_product_flash_attention_for_cpu _scaled_mm _softmax _softmax_backward_data _to_copy _trilinear
    _unsafe_index _unsafe_index_put _unsafe_masked_index _unsafe_view _upsample_bicubic2d_aa _upsample_bilinear2d_aa
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d _weight_norm
    _weight_norm_interface""".split()
)
_OF_A_KIND = re.compile(r"_foreach_\w+|_\w+_backward")
"""Operators with a private name that compute, as torch's own decompositions call them; those on several tensors, and
those of a backward pass. Others have effects beside their
results: `_lazy_clone` copies when its result is read, `_reshape_from_tensor` reads sizes off a tensor."""

_CALLING_BACK = frozenset(("torch.nn.functional.triplet_margin_with_distance_loss",))
"""Functions that call one of their arguments, with what nobody has followed."""

_SHARING = frozenset(("torch.asarray", "torch.ops.aten.set.source_Tensor"))
"""Functions whose result shares the memory of what is no tensor, such as a bytes object, where a kernel would write, or
of another argument than the first."""

_OF_AUTOGRAD = frozenset(("requires_grad_",))
"""Methods that a graph record may hold and that change a tensor beside its values."""

_SCALARS = frozenset(
    """can_cast get_device is_complex is_conj is_distributed is_floating_point is_inference is_neg is_same_size
    is_signed numel nelement promote_types result_type broadcast_shapes sym_float sym_int sym_ite sym_max sym_min
    sym_not sym_sqrt sym_sum dim ndimension size stride storage_offset element_size is_contiguous has_names is_pinned
    is_coalesced dense_dim sparse_dim qscheme""".split()
)
_SAME_MEMORY = frozenset(
    """to type type_as float half bfloat16 double int long short bool char byte cfloat cdouble cuda contiguous reshape
    flatten view _unsafe_view dropout alpha_dropout feature_dropout broadcast_to
    atleast_1d atleast_2d atleast_3d lift dequantize unsafe_split unsafe_split_with_sizes unsafe_chunk resize
    resize_as""".split()
)
"""Operators whose result may be their argument, or share its memory, though no schema says so."""
_FRESH = frozenset(
    """matmul linear layer_norm group_norm batch_norm conv1d conv2d conv3d softmax log_softmax
    scaled_dot_product_attention
    cat concat stack hstack vstack column_stack clone tile where var std max min argsort square outer one_hot
    vector_norm rms_norm empty empty_like zeros zeros_like ones ones_like full full_like empty_strided""".split()
)
"""Operators whose result has memory of its own, though their schemas do not show it: others call them."""


@dataclass(frozen=True)
class LibraryCall:
    """What a call of an operator does. `written`: the expressions that it writes to; `scalar`: it returns no tensor;
    `fresh`: its result has memory of its own; `views`: its result may share the memory of its first argument."""

    random: bool
    reading: bool
    written: tuple[ast.expr, ...]
    scalar: bool
    fresh: bool
    views: bool


@functools.cache
def stored_name(dotted: str) -> str | None:
    """The name under which a record holds the function that host code names; None if it may not be called there.

    `torch.functional.einsum` → `torch.einsum`, `torch.Tensor.add` → `.add`, `torch.ops.aten.mm.default` → itself, and
    `torch.ops.aten.add` → `torch.ops.aten.add.Tensor`, since no overload of it writes but to its `out=`.
    """
    found = targets.spellings().get(dotted)
    if found in _CALLING_BACK | _SHARING:
        return None
    if found is not None:
        return None if found.startswith(("builtins.", "torch.amp.")) or "._" in found[6:] else found
    if dotted.startswith("torch.Tensor."):
        name = dotted.removeprefix("torch.Tensor.")
        return f".{name}" if is_method(name) else None
    try:
        overload = targets.resolve(dotted if dotted.count(".") == 4 else f"{dotted}.{_overload_of(dotted)}")
    except TargetError:
        return None
    if not isinstance(overload, torch._ops.OpOverload) or overload.name() not in _dispatched():
        return None  # an interpreter's own, such as `aten::Int.Tensor`, goes past the dispatcher
    stored = str(targets.name_of(overload))
    base = _base(stored)[1]
    private = base.startswith("_") and not _OF_A_KIND.fullmatch(base)
    return stored if stored not in _SHARING and (not private or base in _PRIVATE | READING) else None


def _overload_of(dotted: str) -> str:
    """The overload that stands for all of a packet, `torch.ops.SPACE.NAME`, of which torch chooses by the arguments:
    the default one, or else one of tensors, if those without `out=` write to nothing."""
    space, _, base = dotted.removeprefix("torch.ops.").partition(".")
    plain = [s for s in _schemas(base) if _is_dispatched(s)] if space == "aten" else []
    chosen = [s for s in plain if all(a.name != "out" for a in s.arguments)]
    writing = any(a.alias_info is not None and a.alias_info.is_write for s in chosen for a in s.arguments)
    names = {s.overload_name or "default" for s in chosen}
    return "Tensor" if "Tensor" in names and "default" not in names and not writing else "default"


def _is_dispatched(schema: torch.FunctionSchema) -> bool:
    return f"{schema.name}.{schema.overload_name}".removesuffix(".") in _dispatched()


def writes_always(stored: str) -> bool:
    """Whether an operator writes to one of its arguments whatever these are, as its name or its schema says."""
    if stored.endswith("_") or stored.removeprefix("operator.") in {"setitem", *targets.AUGMENTED}:
        return True
    if not stored.startswith("torch.ops."):
        return False
    arguments = targets.resolve(stored)._schema.arguments
    return any(a.alias_info is not None and a.alias_info.is_write for a in arguments)


def is_method(name: str) -> bool:
    """Whether host code may call a tensor method of this name, effects aside."""
    return name in targets.methods() and name not in _OF_AUTOGRAD


_OF_LIBRARIES = {"map": 0, "filter": 0, "functools.reduce": 0, "itertools.accumulate": 1}
"""What calls a function that it gets, then and there → the position of that function."""
_ARITHMETIC = frozenset("abs add floordiv invert lshift matmul neg pos pow rshift sub truediv".split())
"""Functions of `operator` that ask no tensor for its values, whatever they get."""


def called_at_once(
    tree: ast.AST, dotted: Callable[[ast.expr], str | None], bound: Collection[str]
) -> dict[ast.expr, str]:
    """Where a function stands that `map`, `reduce` and their kin call then and there, each with the name of what calls
    it. `dotted` says what a name stands for that starts at an import, `bound` holds the names that the module binds."""
    found: dict[ast.expr, str] = {}
    for node in walk(tree):
        if not isinstance(node, ast.Call):
            continue
        own = isinstance(node.func, ast.Name) and node.func.id in bound
        name = dotted(node.func) or ("" if own else getattr(node.func, "id", ""))
        place = _OF_LIBRARIES.get(name, len(node.args))
        if not any(isinstance(argument, ast.Starred) for argument in node.args[: place + 1]):
            found |= {argument: name for argument in node.args[place : place + 1]}
    return found


def may_be_value(stored: str, caller: str | None) -> bool:
    """Whether a function may be a value where this one calls it, or where anyone does.

    Of those of `operator` most read what they get. What `map` and `filter` get of tensors is refused in any case, but
    `mod` makes texts. A product reads where one side is a list.
    """
    module, _, name = stored.rpartition(".")
    if module != "operator" or name in _ARITHMETIC:
        return True
    return caller is not None and name != "mod" and (name == "mul" or caller in ("map", "filter"))


def makes_one(stored: str) -> bool:
    """Whether what an operator returns is one tensor, whichever of its overloads torch chooses."""
    return all(found == ("Tensor",) for found in _returned(stored)) and bool(_returned(stored))


def makes_several(stored: str) -> bool:
    """Whether it is a list or a tuple of tensors, or one tensor by some of the overloads, but not by all."""
    lists = (found == ("List[Tensor]",) or {*found} == {"Tensor"} for found in _returned(stored))
    return all(lists) and bool(_returned(stored)) and not makes_one(stored)


def makes_list(stored: str) -> bool:
    """Whether it is surely a list or a tuple of tensors."""
    return bool(_returned(stored)) and all(found == ("List[Tensor]",) for found in _returned(stored))


def is_in_python(stored: str) -> bool:
    """Whether a function is written in Python, so that it may call methods of what it gets."""
    return not stored.startswith((".", "torch.ops.")) and isinstance(targets.resolve(stored), FunctionType)


@functools.cache
def _returned(stored: str) -> tuple[tuple[str, ...], ...]:
    """The types of what each overload of an operator returns, as torch writes them; empty where they do not tell. Those
    of a function that is written in Python do not where an argument may tell it to return more."""
    space, base = _base(stored)
    if stored.startswith("torch.ops."):
        schemas = [targets.resolve(stored)._schema]
    elif stored.startswith(".") and base in _CASTS:
        return (("Tensor",),)
    else:
        of_space = _schemas(f"{space}_{base}") if space else ()  # `linalg_qr`
        schemas = [s for s in of_space or _schemas(base) if _is_dispatched(s)]
    if is_in_python(stored):
        taken = inspect.signature(targets.resolve(stored)).parameters.values()
        if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) or p.name.startswith("return_") for p in taken):
            return ()
    return tuple(tuple(str(r.type) for r in s.returns) for s in schemas)


_CASTS = frozenset("float half bfloat16 double int long short bool char byte cfloat cdouble cuda cpu".split())
"""Methods of which torch has no schema by their name."""


def takes_inplace(stored: str) -> bool:
    """Whether an operator has a parameter `inplace`."""
    return effects.inplace_position(Op("function", stored, (), {})) >= 0


@functools.cache
def switched_by(stored: str) -> tuple[str, ...]:
    """Arguments that decide whether an operator draws, or writes to another of its arguments: a batch norm trains, an
    embedding renormalises its rows."""
    if stored.startswith((".", "operator.")):
        return ()

    def acts(count: int, **by_name: object) -> bool:
        op = Op("function", stored, tuple(map(Ref, range(count))), by_name)
        return bool(effects.writes(op)) or effects.is_random(op)

    return tuple(
        name
        for name, off in _SWITCHES.items()
        if any(acts(count, **{name: Ref(5)}) and not acts(count, **{name: off}) for count in (1, 3, 5))
    )


_SWITCHES = {"training": False, "train": False, "use_input_stats": False, "max_norm": None}
"""By name, with what leaves them off."""


def library_call(stored: str, arguments: list[ast.expr], keywords: dict[str, ast.expr]) -> LibraryCall:
    """What a call does whose function is stored as this, with these arguments; a method's tensor is the first."""
    kind = "method" if stored.startswith(".") else "function"
    values = tuple(_value(a, n) for n, a in enumerate(arguments))
    named = {k: _value(v, len(arguments) + n) for n, (k, v) in enumerate(keywords.items())}
    op = Op(kind, stored.removeprefix("."), values, named)
    parts = [*arguments, *keywords.values()]
    base = effects.base_name(op)
    starred = tuple(Ref(n) for n, a in enumerate(arguments) if isinstance(a, ast.Starred))
    reads = base in READING or (base == "where" and (bool(starred) or len(parts) == 1))  # alone it says where it holds
    classes = named.get("num_classes", values[1] if len(values) > 1 else -1)
    reads |= base == _ONE_HOT and not (type(classes) is int and classes >= 0)  # of -1 classes it counts them
    reads |= base == "repeat_interleave" and len(parts) == 1  # how often each number, which decides the size
    written = tuple(parts[ref.index] for ref in _writes(op, starred))
    copies = base == "to" and named.get("copy") is True
    fresh = (copies or _is_fresh(base)) and not written
    views = not copies and (base in _SAME_MEMORY or _is_view(base))
    return LibraryCall(effects.is_random(op) or _draws(stored), reads, written, base in _SCALARS, fresh, views)


@functools.cache
def _draws(stored: str) -> bool:
    """Whether torch says of an overload that it draws random numbers, whatever its arguments are."""
    if not stored.startswith("torch.ops.") or _DRAWS_BY_CHOICE.fullmatch(_base(stored)[1]):
        return False
    return torch.Tag.nondeterministic_seeded in targets.resolve(stored).tags


_DRAWS_BY_CHOICE = re.compile(r"\w*(attention|dropout|rnn|lstm|gru)\w*|rrelu")


def _writes(op: Op, starred: tuple[Ref, ...]) -> tuple[Ref, ...]:
    """As `effects.writes`, and what an overload's schema says; no method has a parameter `inplace`. `starred` are
    arguments `*values`, which may be any."""
    if op.kind == "method" and not op.target.endswith("_") and "out" not in op.kwargs:
        return ()
    written = [*effects.writes(op)]
    if op.target.startswith("torch.ops."):
        space, base = _base(op.target)
        if space == "aten":  # batch norm's statistics, of which its schema says nothing
            written += effects.writes(Op(op.kind, f"torch.{base}", op.args, op.kwargs))
        arguments = targets.resolve(op.target)._schema.arguments
        places = [(n, a) for n, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.is_write]
        for number, argument in places:
            position = -1 if argument.kwarg_only else number
            written += refs(effects.argument(op, position, argument.name))
        written += starred if places else ()
        outputs = _outputs_by_name(base) - {a.name for a in arguments}  # of another overload of the packet
        written += [ref for name in sorted(op.kwargs.keys() & outputs) for ref in refs(op.kwargs[name])]
    return tuple(dict.fromkeys(written))


def _value(node: ast.expr, number: int) -> object:
    """A constant itself; anything else stands for a value of the graph."""
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str | None):
        return node.value
    return Ref(number)


_READ_BY_THE_HOST = {
    "tensor_split": ("tensor_indices_or_sections",), "narrow": ("start",), "repeat_interleave": ("repeats",),
    "linspace": ("start", "end"), "logspace": ("start", "end"),
}  # fmt: skip
"""Parameters that an overload takes as tensors only to read what they hold."""


_ONE_HOT = "one_hot"


def counts_classes(stored: str) -> bool:
    """Whether an operator takes a number of classes, and counts them where that is -1."""
    return _base(stored)[1] == _ONE_HOT


def is_read_unseen(stored: str, place: int | str) -> bool:
    """Whether torch reads a tensor at a place, a position or a keyword, by no operator that an observation sees."""
    return _base(stored)[1] == "tensor_split" and place in (1, *_READ_BY_THE_HOST["tensor_split"])


@functools.cache
def is_number(stored: str, place: int | str) -> bool:
    """Whether an operator needs a number, or numbers, at a place, a position or a keyword: of a tensor the host would
    read the value. False where nothing says so."""
    space, base = _base(stored)
    schemas = _schemas(base) or _schemas(f"{space}_{base}")
    kinds = [found for schema in schemas if (found := _parameter(schema.arguments, base, place)) is not None]
    return bool(kinds) and not any("Tensor" in kind for kind in kinds)


def _base(stored: str) -> tuple[str, str]:
    """Namespace and name of an operator, without its overload: `torch.fft.fft` → ("fft", "fft")."""
    parts = stored.split(".")
    space, base = parts[2:4] if stored.startswith("torch.ops.") and len(parts) > 3 else ("", *parts)[-2:]
    return space, base


def _parameter(arguments: list, base: str, place: int | str) -> str | None:
    """The type of a parameter as torch writes it, None if there is none at this place. Sizes may be written one by one:
    what comes behind the last position belongs to it."""
    if isinstance(place, str):
        found = next((a for a in arguments if a.name == place), None)
    else:
        positional = [a for a in arguments if not a.kwarg_only]
        found = positional[min(place, len(positional) - 1)] if positional else None
        if found is not None and place >= len(positional) and "List" not in str(found.type):
            return None
    if found is None:
        return None
    return "int" if found.name in _READ_BY_THE_HOST.get(base, ()) else str(found.type)


@functools.cache
def _schemas(base: str) -> tuple:
    return tuple(torch._C._jit_get_schemas_for_operator(f"aten::{base}"))


@functools.cache
def _outputs_by_name(base: str) -> frozenset[str]:
    """Names of what overloads of an operator write to if they get it, such as `out`, or `min` of `aminmax`."""
    arguments = (a for schema in _schemas(base) for a in schema.arguments)
    return frozenset(a.name for a in arguments if a.kwarg_only and a.alias_info is not None and a.alias_info.is_write)


@functools.cache
def _is_view(base: str) -> bool:
    """Whether a result may be a view of an argument; what `out=` and in-place forms return is written, and no view."""
    infos = (r.alias_info for s in _schemas(base) for r in s.returns)
    return any(info is not None and not info.is_write for info in infos)


@functools.cache
def _is_fresh(base: str) -> bool:
    if base in _FRESH:
        return True
    if base in _SAME_MEMORY or not _schemas(base) or _is_view(base):
        return False
    composite = torch._C._dispatch_has_kernel_for_dispatch_key
    by_number = [s.overload_name for s in _schemas(base) if "name" not in s.overload_name.lower()]
    names = {f"aten::{base}" + (f".{name}" if name else "") for name in by_number}  # names of dimensions call these
    return not any(composite(name, "CompositeImplicitAutograd") for name in names & _dispatched())


@functools.cache
def _dispatched() -> frozenset[str]:
    """Operators that torch dispatches by the kind of their tensors; others have schemas of numbers and lists alone."""
    return frozenset(torch._C._dispatch_get_all_op_names())
