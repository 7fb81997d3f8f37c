"""`LaunchPlan`: the fresh tensors and the launches of a wrapper as one call."""

from typing import Any

import torch
from triton.runtime.driver import driver

from passbench.launch.allocation import empty_strided
from passbench.launch.guarded_call import Layout, Step, guarded_call
from passbench.launch.kernel_launch import Launch


class LaunchPlan:
    """`LaunchPlan(2, ((64,), (1,), torch.float32), (launch, (0, 1, 2)))`: of two inputs, which are tensors 0 and 1, one
    fresh tensor, number 2, given by size, stride and dtype, and a `Launch` on these three.

    Called with the inputs, it allocates, launches in order, and returns the fresh tensors: None, the one, or a tuple.
    What its launches check of each tensor is checked once for all. Raises TypeError on other arguments; its first call
    raises ValueError if there are more than 4096 tensors in all.
    """

    __slots__ = ("__bound", "__fresh", "__inputs", "__launches", "__run")

    def __init__(self, inputs: int, *parts: tuple) -> None:
        self.__inputs = inputs
        self.__fresh: list[Layout] = [part for part in parts if _is_layout(part)]
        self.__launches = [part for part in parts if _is_launch(part, inputs + len(self.__fresh))]
        if type(inputs) is not int or inputs < 1 or len(self.__fresh) + len(self.__launches) < len(parts):
            raise TypeError("a LaunchPlan takes a number of inputs, then (size, stride, dtype) or (Launch, numbers)")
        self.__bound = False
        self.__run = self.by_launches

    def by_launches(self, *inputs: torch.Tensor) -> Any:
        """The same launch by launch."""
        if len(inputs) != self.__inputs:
            raise TypeError(f"a LaunchPlan of {self.__inputs} inputs was called with {len(inputs)}")
        _check_tensors(inputs)
        fresh = [empty_strided(*layout, inputs[0]) for layout in self.__fresh]
        tensors = [*inputs, *fresh]
        for launch, numbers in self.__launches:
            launch(*[tensors[n] for n in numbers])
        if not self.__bound:
            self._bind(tensors)
        return None if not fresh else fresh[0] if len(fresh) == 1 else tuple(fresh)

    def _bind(self, tensors: list[torch.Tensor]) -> None:
        """From now on without a look at each launch, if all are compiled for tensors like these."""
        device, dtypes = tensors[0].get_device(), [x.dtype for x in tensors]
        kernels = [launch.bound_for(tuple([dtypes[n] for n in numbers]), device) for launch, numbers in self.__launches]
        if not kernels or None in kernels or device != driver.active.get_current_device():
            return
        steps = [Step(kernel, numbers) for kernel, (_, numbers) in zip(kernels, self.__launches, strict=True)]
        self.__run = guarded_call(dtypes[: self.__inputs], self.__fresh, steps, device, self.by_launches)
        self.__bound = True


LaunchPlan.__call__ = LaunchPlan._LaunchPlan__run  # Python looks up what a plan runs: no method of its own in between


def _check_tensors(inputs: tuple[torch.Tensor, ...]) -> None:
    """Raises the AttributeError that the call in C raises for an input that is no tensor: before any launch, also for
    an input that no launch uses. It reads the same attributes in the same order."""
    for x in inputs:
        x.data_ptr()
    for x in inputs:
        x.dtype, x.get_device()


def _is_layout(part: Any) -> bool:
    if not (type(part) is tuple and len(part) == 3 and type(part[2]) is torch.dtype):
        return False
    return all(type(sizes) is tuple and all(type(n) is int for n in sizes) for sizes in part[:2])


def _is_launch(part: Any, tensors: int) -> bool:
    if not (type(part) is tuple and len(part) == 2 and type(part[0]) is Launch and type(part[1]) is tuple):
        return False
    return all(type(n) is int and 0 <= n < tensors for n in part[1])
