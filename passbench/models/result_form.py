"""What a model returns, made of the outputs of its graph and of the tensors of a call."""

import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from types import ModuleType
from typing import Any

import torch
from torch.utils._pytree import (
    TreeSpec,
    tree_flatten,
    tree_structure,
    tree_unflatten,
)

from storage.errors import PassNetError

_CONSTANT = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
_IN_JSON = (bool, int, str, type(None))


class NoResultForm(PassNetError):
    """A model's result cannot be made of its graph's outputs; the message says why."""


@dataclass(frozen=True)
class ResultForm:
    """`slots` say of each leaf where it is from: an output or an input by number, or a constant. `spec` is how pytree
    puts leaves together; `flat` the class of a result that is a dictionary and a dataclass, as transformers' outputs
    are, of tensors alone, with `keys`, and `empty`, the attributes that are None."""

    slots: tuple[tuple[str, Any], ...]
    spec: TreeSpec
    flat: type | None = None
    keys: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()

    def builder(self) -> Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], Any]:
        """A function of the graph's outputs and the call's tensors that gives the model's result."""
        if self.flat is not None:
            return self._flat_builder(self.flat)
        slots, spec = self.slots, self.spec
        outputs = [number for side, number in slots if side == "output"]
        if spec.is_leaf() and outputs:
            only = outputs[0]
            return lambda made, given: made[only]
        if spec.type in (tuple, list) and spec == tree_structure(spec.type([0] * len(outputs))):
            sort = spec.type
            return lambda made, given: sort([made[number] for number in outputs])
        sides = {"output": 0, "input": 1}
        return lambda *both: tree_unflatten([both[sides[s]][what] if s in sides else what for s, what in slots], spec)

    def _flat_builder(self, kind: type) -> Callable[[Sequence, Sequence], Any]:
        keys, slots, plain = self.keys, self.slots, dict.fromkeys(self.empty)

        def build(made: Sequence, given: Sequence) -> Any:
            found = ((made if side == "output" else given)[number] for side, number in slots)
            return _made(kind, dict(zip(keys, found, strict=True)), plain)

        return build

    def to_json(self) -> dict[str, Any]:
        """As plain data. Raises NoResultForm where it holds something that plain data does not."""
        if any(side == "constant" and type(what) not in _IN_JSON for side, what in self.slots):
            raise NoResultForm("the model returns a constant that plain data does not hold")
        flat = None if self.flat is None else _name_of(self.flat)
        spec = None if flat is not None else _shape_of(tree_unflatten([0] * self.spec.num_leaves, self.spec))
        return {"slots": self.slots, "spec": spec, "flat": flat, "keys": self.keys, "empty": self.empty}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "ResultForm":
        """From what `to_json` gave; nothing is imported. Raises NoResultForm where the class is not there."""
        slots = tuple((str(side), what) for side, what in data["slots"])
        if data["flat"] is None:
            spec = tree_structure(_of_shape(data["spec"]))
            if spec.num_leaves != len(slots):
                raise NoResultForm("the result has another number of leaves here")
            return cls(slots, spec)
        return cls(slots, tree_structure(0), _class_of(data["flat"]), tuple(data["keys"]), tuple(data["empty"]))


_CONTAINERS = {"list": list, "tuple": tuple}
_MAPPINGS = {"dict": dict, "OrderedDict": OrderedDict}
_CLASS = "class"
"""Stands before the name of a class like those that `ResultForm.flat` may be, in a result that has other parts."""


def _shape_of(tree: Any) -> list | None:
    """A result without its leaves as plain data. pytree's own form names modules that are imported when it is read."""
    kind = type(tree).__name__
    if _CONTAINERS.get(kind) is type(tree):
        return [kind, [_shape_of(each) for each in tree]]
    if _MAPPINGS.get(kind) is type(tree) and all(type(key) in (int, str) for key in tree):
        return [kind, [[key, _shape_of(each)] for key, each in tree.items()]]
    if isinstance(tree, OrderedDict) and is_dataclass(tree) and all(type(key) is str for key in tree):
        return [_CLASS, [_name_of(type(tree)), [[key, _shape_of(each)] for key, each in tree.items()]]]
    if type(tree) is not int:
        raise NoResultForm(f"the model returns a {kind}, which plain data does not hold")
    return None


def _of_shape(shape: list | None) -> Any:
    if shape is None:
        return 0
    kind, inside = shape
    if kind in _CONTAINERS:
        return _CONTAINERS[kind](map(_of_shape, inside))
    if kind == _CLASS:
        return _made(_class_of(inside[0]), {str(key): _of_shape(each) for key, each in inside[1]}, {})
    return _MAPPINGS[kind]((key, _of_shape(each)) for key, each in inside)


def _made(kind: type, values: Mapping[str, Any], plain: Mapping[str, Any]) -> Any:
    """A dictionary that is a dataclass, without its own constructor, which takes several times as long."""
    new = kind.__new__(kind)
    OrderedDict.__init__(new)
    for key, value in values.items():
        OrderedDict.__setitem__(new, key, value)
    vars(new).update(plain, **values)
    return new


def _name_of(kind: type) -> list[str]:
    """Module and name of a class. Raises NoResultForm where it is not found by them."""
    if _class_at(kind.__module__, kind.__qualname__) is not kind:
        raise NoResultForm(f"the model returns a {kind.__qualname__}, which is not found by its name")
    return [kind.__module__, kind.__qualname__]


def _class_of(name: Sequence[str]) -> type:
    """The class that `_name_of` gave the name of. Raises NoResultForm where it is not there, or of another kind."""
    found = _class_at(*name)
    if not (isinstance(found, type) and issubclass(found, OrderedDict) and is_dataclass(found)):
        raise NoResultForm(f"{name} is no class of a model's result here")
    return found


def _class_at(module: str, name: str) -> Any:
    """The class of a module by its name, None where there is none. Nothing is asked that could import or load."""
    found: Any = sys.modules.get(module)
    for each in name.split("."):
        found = vars(found).get(each) if isinstance(found, ModuleType | type) else None
    return found


def result_form(result: Any, outputs: Sequence[torch.Tensor], moving: Sequence[torch.Tensor]) -> ResultForm:
    """How a result was made of the graph's outputs and the call's tensors. Raises NoResultForm where that cannot be
    told."""
    leaves, spec = tree_flatten(result)
    slots = tuple(_slot(leaf, outputs, moving) for leaf in leaves)
    kind = type(result)
    if isinstance(result, OrderedDict) and is_dataclass(result) and len(slots) == len(result):
        keys, attributes = tuple(result), dict(vars(result))
        empty = tuple(key for key in attributes if key not in result)
        alike = all(isinstance(x, torch.Tensor) and attributes.get(key) is x for key, x in result.items())
        if alike and all(attributes[key] is None for key in empty):
            return ResultForm(slots, spec, kind, keys, empty)
    return ResultForm(slots, spec)


def _slot(leaf: Any, outputs: Sequence, moving: Sequence) -> tuple[str, Any]:
    if not isinstance(leaf, torch.Tensor):
        if isinstance(leaf, _CONSTANT):
            return "constant", leaf
        raise NoResultForm(f"the model returns a {type(leaf).__qualname__}, which may hold tensors")
    for kind, group in (("input", moving), ("output", outputs)):
        for number, tensor in enumerate(group):
            if tensor is leaf:
                return kind, number
    raise NoResultForm("the model returns a parameter, or a tensor that is made outside of its graph")
