"""Whether all that a kept capture depends on is still as it was when it was believed: asked in every call."""

import gc
import types
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter, is_
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_structure

from passbench.models.kept.paths import ABSENT
from passbench.models.kept.witness import firsts
from passbench.models.parameters.parameter_parts import ModuleState

_version = torch._C._dynamo.guards.dict_version
_meaning = attrgetter("__code__", "__defaults__", "__kwdefaults__")


class Watch:
    """The dictionaries, slots, containers, cells and classes of all objects that dynamo read, the model's modules,
    torch's state and the example call. Any change counts, also one that dynamo's guards would let pass: dynamo is asked
    then."""

    def __init__(
        self,
        model: torch.nn.Module,
        args: tuple,
        kwargs: Mapping[str, Any],
        steps: Sequence[list],
        values: Sequence[Any],
        held: Sequence[tuple[dict, str]],
    ) -> None:
        self._state = torch._C._dynamo.guards.GlobalStateGuard()
        self._modules = ModuleState(model)
        self._call = _Call(args, kwargs)
        taken = {(id(group), key) for group, key in held}
        self._groups = [group for each in dict.fromkeys(model.modules()) for group in _groups_of(each)]
        self._sizes = list(map(len, self._groups))
        left = [(group, key) for group in self._groups for key in group if (id(group), key) not in taken]
        self._left, self._keys = [group for group, _ in left], [key for _, key in left]
        self._values = list(map(dict.get, self._left, self._keys))
        passed_over = {id(group) for each in dict.fromkeys(model.modules()) for group in _passed_over(each)}
        self._noted: dict[int, tuple[dict, dict, bool]] = {}
        self._lists: dict[int, tuple[list | deque | set, list]] = {}
        functions: dict[int, types.FunctionType] = {}
        for group, key in (*_of_modules(steps, values), *_of_tensors(steps, values)):
            self._noted.setdefault(id(group), (group, {}, False))[1][key] = group.get(key)
        passed_over |= {id(value) for step, value in zip(steps, values, strict=True) if step[0] == "names"}
        for value in (*values, *model.modules(), *dict.fromkeys(map(type, model.modules()))):
            if isinstance(value, types.FunctionType):
                functions[id(value)] = value
            if id(value) not in passed_over:
                self._note(value)
        self._functions = list(functions.values())
        self._meanings = [part for each in self._functions for part in _meaning(each)]
        self._cells = [cell for each in self._functions for cell in each.__closure__ or ()]
        self._cells += [value for value in values if isinstance(value, types.CellType)]
        self._contents = list(map(_contents, self._cells))
        self._slots = list(_slots(steps, values))
        self._objects = [*dict.fromkeys(model.modules()), *(x for x in values if _may_change_class(x))]
        self._types = list(map(type, self._objects))
        self._dicts = [group for group, _, _ in self._noted.values()]
        self._versions = list(map(_version, self._dicts))

    def _note(self, value: Any) -> None:
        if isinstance(value, list | tuple | deque | set):
            if not isinstance(value, tuple):
                self._lists[id(value)] = (value, list(value))
            for each in value:
                if isinstance(each, list | tuple | deque | set | dict) and id(each) not in self._lists:
                    self._note(each)
        elif isinstance(value, dict):
            self._add(value)
        elif isinstance(value, types.MappingProxyType):
            self._add(*gc.get_referents(value))
        if isinstance(value, type):
            for each in value.__mro__:
                if each.__flags__ & (1 << 9):  # made by Python, so that its members can change
                    self._add(*gc.get_referents(vars(each)))
        elif isinstance(value, torch.Tensor | types.ModuleType):
            return
        elif isinstance(own := getattr(value, "__dict__", None), dict):
            self._add(own)

    def _add(self, group: Any) -> None:
        if isinstance(group, dict) and id(group) not in self._noted:
            self._noted[id(group)] = (group, dict(group), True)

    def unchanged(self, args: tuple, kwargs: Mapping[str, Any]) -> bool:
        """Whether all of it is as it was, and the call is of the example's kind."""
        if torch._C._len_torch_function_stack() or not self._state.check():
            return False  # a default device is a mode of that stack, too
        if not (self._call.fits(args, kwargs) and self._modules.unchanged()):
            return False
        if list(map(len, self._groups)) != self._sizes or not all(map(is_, map(type, self._objects), self._types)):
            return False
        meanings = (part for each in self._functions for part in _meaning(each))
        if not (all(map(is_, meanings, self._meanings)) and all(map(is_, map(_contents, self._cells), self._contents))):
            return False
        if not all(getattr(owner, name, None) is then for owner, name, then in self._slots):
            return False
        if not all(map(is_, map(dict.get, self._left, self._keys), self._values)):
            return False
        if not all(_same(now, then) for now, then in self._lists.values()):
            return False
        now = list(map(_version, self._dicts))
        if now != self._versions:
            for then, version, group in zip(self._versions, now, self._dicts, strict=True):
                if then != version and not self._as_noted(group):
                    return False
            self._versions = now
        return True

    def _as_noted(self, group: dict) -> bool:
        _, kept, whole = self._noted[id(group)]
        if whole and len(group) != len(kept):
            return False
        return all(group.get(key) is value for key, value in kept.items())


def _of_modules(steps: Sequence[list], values: Sequence[Any]) -> Iterator[tuple[dict, str]]:
    """The names of modules that were read, of each its dictionary and its key."""
    for kind, base, name in steps:
        if kind == "attribute" and isinstance(values[base], types.ModuleType):
            yield vars(values[base]), name
        elif kind == "item" and steps[base][0] == "names" and isinstance(values[base], dict):
            yield values[base], name


def _of_tensors(steps: Sequence[list], values: Sequence[Any]) -> Iterator[tuple[dict, str]]:
    """The attributes that somebody gave to tensors and that were read."""
    for kind, base, name in steps:
        if kind in ("attribute", "own") and isinstance(values[base], torch.Tensor):
            yield vars(values[base]), name


def _slots(steps: Sequence[list], values: Sequence[Any]) -> Iterator[tuple[Any, str, Any]]:
    """What was read of objects without a dictionary: the object, the name and the value."""
    for (kind, base, name), value in zip(steps, values, strict=True):
        if kind in ("attribute", "own") and isinstance(name, str):
            found = (vars(each)[name] for each in type(values[base]).__mro__ if name in vars(each))
            if isinstance(next(found, None), types.MemberDescriptorType):
                yield values[base], name, None if value is ABSENT else value


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return ABSENT


def _may_change_class(value: Any) -> bool:
    """Whether the class was made by Python: an object of another has its class for good."""
    return bool(type(value).__flags__ & (1 << 9)) and not isinstance(value, type)


def _groups_of(module: torch.nn.Module) -> tuple[dict, dict]:
    """Dictionaries of which `HeldState` asks for the tensors that the graph takes."""
    return module._parameters, module._buffers


def _passed_over(module: torch.nn.Module) -> Iterator[dict]:
    """What `ModuleState` and `_groups_of` look after, and hooks of gradients, of which there are none."""
    yield from (module._parameters, module._buffers, module._modules)
    yield from (x for key, x in vars(module).items() if "hooks" in key and isinstance(x, dict))


class _Call:
    """The kind of the example call: what it holds besides tensors, which tensors are one, and their kinds."""

    def __init__(self, args: tuple, kwargs: Mapping[str, Any]) -> None:
        leaves, spec = tree_flatten((args, dict(kwargs)))
        self._spec = None if spec == tree_structure(_flat(args, kwargs)) else spec
        self._names = (len(args), *kwargs)
        self._rest, tensors = _taken_apart(leaves)
        self._firsts = firsts(map(id, tensors))
        self._guards = None
        if tensors:
            nothing = [[None] * x.dim() for x in tensors]
            self._guards = torch._C._dynamo.guards.TensorGuards(
                *tensors, dynamic_dims_sizes=nothing, dynamic_dims_strides=nothing
            )

    def fits(self, args: tuple, kwargs: Mapping[str, Any]) -> bool:
        if (len(args), *kwargs) != self._names:
            return False
        leaves: Sequence[Any] = (*args, *kwargs.values())
        if self._spec is not None:  # else a list in place of a tensor is told by `rest`
            leaves, spec = tree_flatten((args, dict(kwargs)))
            if spec != self._spec:
                return False
        rest, tensors = _taken_apart(leaves)
        if rest != self._rest or firsts(map(id, tensors)) != self._firsts:
            return False
        return self._guards is None or self._guards.check(*tensors)


def _flat(args: tuple, kwargs: Mapping[str, Any]) -> tuple[tuple, dict[str, Any]]:
    return (0,) * len(args), dict.fromkeys(kwargs, 0)


def _taken_apart(leaves: Sequence[Any]) -> tuple[list[str], list[torch.Tensor]]:
    rest = ["" if isinstance(x, torch.Tensor) else f"{type(x).__qualname__} {x!r}" for x in leaves]
    return rest, [x for x in leaves if isinstance(x, torch.Tensor)]


def _same(now: list | deque | set, then: list) -> bool:
    return len(now) == len(then) and all(a is b for a, b in zip(now, then, strict=True))
