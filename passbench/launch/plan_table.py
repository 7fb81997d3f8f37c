"""`plan_for`: what a wrapper has prepared for tensors like those of a call."""

from collections.abc import Callable
from typing import Any

import torch
from torch._C._dynamo.guards import TensorGuards


class PlanTable:
    """Plans by the dtype, shape and stride of all tensors of a call, one behind the other: a dict of tuples.

    The stride of a dimension of size 1 says nothing about where a tensor's elements are, and an operator may return
    another one than it was expected to (`einsum`). Tensors for which there is no plan have one that differs in such
    strides alone.
    """

    __slots__ = ("__alike", "__plans", "latest")

    def __init__(self, plans: dict[tuple, Any]) -> None:
        self.__plans = dict(plans)
        self.__alike: dict[tuple, Any] = {}
        for key, plan in reversed(self.__plans.items()):
            self.__alike[_places(key)] = plan
        self.latest: tuple[Callable[..., bool], Any] = (_never, None)

    @property
    def missed(self) -> bool:
        """Whether it had no plan for the tensors of the last call."""
        fits, plan = self.latest
        return plan is None and fits is not _never

    def look_up(self, tensors: tuple[torch.Tensor, ...]) -> Any:
        """The plan for these tensors, None if there is none. From now on that answer is the first to be looked at."""
        key = tuple([part for x in tensors for part in (x.dtype, x.shape, x.stride())])
        plan = self.__plans[key] if key in self.__plans else self.__alike.get(_places(key))
        sizes, strides = [list(x.shape) for x in tensors], [list(x.stride()) for x in tensors]
        guards = TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
        self.latest = guards.check, plan
        return plan


def _places(key: tuple) -> tuple:
    """A key with a stride of 0 for each dimension of size 1."""
    found = list(key)
    for at in range(2, len(key), 3):
        shape, stride = key[at - 1], key[at]
        if isinstance(shape, tuple) and isinstance(stride, tuple) and len(shape) == len(stride) and 1 in shape:
            found[at] = tuple([0 if size == 1 else step for size, step in zip(shape, stride, strict=True)])
    return tuple(found)


def plan_for(table: PlanTable, *tensors: torch.Tensor) -> Any:
    """The table's plan for tensors of these dtypes, shapes and strides; None if it has none. Strides of dimensions of
    size 1 may be others.

    The answer of the last call is compared first, by one C function: a key made in Python costs about twice as much.
    Raises TypeError for a dict.
    """
    if type(table) is not PlanTable:
        raise TypeError(f"plan_for looks in a PlanTable, not in a {type(table).__name__}")
    fits, plan = table.latest
    return plan if fits(*tensors) else table.look_up(tensors)


def _never(*tensors: torch.Tensor) -> bool:
    return False
