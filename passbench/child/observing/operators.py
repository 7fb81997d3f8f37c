"""Operators as they are dispatched, and Triton kernels as they are launched, inside of replacements."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class OperatorWatch(TorchDispatchMode):
    """Collects operators as they are dispatched and Triton kernels as they are launched.

    A mode, not a tensor class: a pass gets plain tensors and gives plain tensors.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operators: set[str] = set()
        self.triton_kernels: set[str] = set()
        self.events = 0  # operators and launches
        self.captured = False
        self._paused = False
        self._launching = False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if not self._paused:
            self.operators.add(str(func))
            self.events += 1
            if kwargs and kwargs.get("pin_memory"):  # a kernel can write there
                self.operators.add("aten._pin_memory.default")
            if str(func).startswith(("aten.index.", "aten._unsafe_index.")) and _by_mask(args):
                self.operators.add("aten.nonzero.default")  # which `index` calls below the dispatcher
        result = func(*args, **(kwargs or {}))
        if not self._paused and comes_to_the_host(func, (*args, *(kwargs or {}).values()), result):
            self.operators.add("aten.item.default")  # what torch reads there takes no operator
        return result

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Collect what is called in this context."""
        with ExitStack() as stack:
            for owner, method, wrap in self._hooks():
                stack.enter_context(_wrapped(owner, method, wrap))
            stack.enter_context(self)
            stack.enter_context(_SequenceWatch(self.operators))
            yield

    def _hooks(self) -> Iterator[tuple[type, str, Callable]]:
        """Triton's classes are looked up among what is imported: a pass without kernels does without Triton."""
        yield torch.Tensor, "__repr__", self._read
        if (compiled := sys.modules.get("triton.runtime.jit")) is not None:
            yield compiled.JITFunction, "run", self._noted
        if (interpreted := sys.modules.get("triton.runtime.interpreter")) is not None:
            yield interpreted.InterpretedFunction, "run", lambda run: self._noted(_unwatched(run))
            yield interpreted.GridExecutor, "_init_args_hst", self._unseen
            yield interpreted.GridExecutor, "_restore_args_dev", self._unseen
        if (cheap := sys.modules.get("passbench.launch")) is not None:
            yield cheap.Launch, "__call__", self._noted_launch
            yield cheap.LaunchPlan, "__call__", lambda call: cheap.LaunchPlan.by_launches
        if (capture := sys.modules.get("passbench.launch.capture")) is not None:
            yield capture.GraphCapture, "__call__", self._opened

    def _read(self, text: Callable) -> Callable:
        """The text of a tensor has its values; torch makes it past the dispatcher."""

        def read(tensor: torch.Tensor, **how: Any) -> str:
            self.operators.add("aten.item.default")
            return text(tensor, **how)

        return read

    def _noted(self, run: Callable) -> Callable:
        def noted(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            if not kwargs.get("warmup") and not self._launching:
                self.triton_kernels.add(kernel.__name__)
                self.events += 1
            return run(kernel, *args, **kwargs)

        return noted

    def _noted_launch(self, call: Callable) -> Callable:
        """A `Launch` is one event, whether it takes Triton's path or its own."""

        def noted(launch: Any, *tensors: Any) -> None:
            self.triton_kernels.add(launch.name)
            self.events += 1
            self._launching = True
            try:
                call.__get__(launch)(*tensors)  # a `Launch` is called as its own function
            finally:
                self._launching = False

        return noted

    def _opened(self, call: Callable) -> Callable:
        """What would be a CUDA graph is run as it is: a replay has no operators to see.

        What the graph has was recorded earlier, perhaps of something else, so that nothing is said of its kernels.
        """

        def opened(capture: Any, function: Callable, *arguments: Any) -> Any:
            self.captured = True
            return function(*arguments)

        return opened

    def _unseen(self, method: Callable) -> Callable:
        """Triton's interpreter hands arguments to a kernel, and takes them back, by operators of its own."""

        def unseen(*args: Any) -> Any:
            self._paused = True
            try:
                return method(*args)
            finally:
                self._paused = False

        return unseen


class _SequenceWatch(TorchFunctionMode):
    """Sees what makes a tensor of numbers where some of them are tensors, as in `torch.tensor(x.unbind())`: torch reads
    each of them past the dispatcher. On a device such a read is a copy, which operators of linear algebra make, too."""

    def __init__(self, operators: set[str]) -> None:
        super().__init__()
        self._operators = operators

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        given = (*args, *(kwargs or {}).values())
        if func in _BY_INDEX:
            given = _lists_of(given[1:2])
        if func in _OF_NUMBERS | _BY_INDEX and _have_tensors(given):
            self._operators.add("aten.item.default")
        return func(*args, **(kwargs or {}))


_OF_NUMBERS = frozenset((torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor, torch.Tensor.new))
_BY_INDEX = frozenset((torch.Tensor.__getitem__, torch.Tensor.__setitem__))
"""A list as an index is made a tensor, from torch 2.9 on in the words of its warning."""


def _lists_of(index: tuple) -> tuple:
    """The index if it is a list, or the sequences among its parts: each of these is made a tensor."""
    if index and isinstance(index[0], tuple):
        return tuple(part for part in index[0] if isinstance(part, Sequence))
    return tuple(part for part in index if isinstance(part, list))


def _have_tensors(values: Iterable[Any]) -> bool:
    """Whether one of these is a sequence that has a tensor, in itself or in a sequence within. It may hold itself."""
    waiting = [value for value in values if isinstance(value, Sequence)]
    seen: set[int] = set()
    while waiting:
        sequence = waiting.pop()
        if id(sequence) in seen or isinstance(sequence, str):
            continue
        seen.add(id(sequence))
        for item in sequence:
            if isinstance(item, torch.Tensor):
                return True
            if isinstance(item, Sequence):
                waiting.append(item)
    return False


def comes_to_the_host(func: Any, given: Sequence[Any], result: Any) -> bool:
    """Whether an operator brings what lies on a device to the host.

    Attention also returns the state of a random generator, which is the host's unless a CUDA graph is recorded. Any
    other operator that may draw is refused in any case.
    """
    if torch.Tag.nondeterministic_seeded in func.tags:
        return False
    tensors = [x for x in given if isinstance(x, torch.Tensor)]
    results = result if isinstance(result, tuple | list) else (result,)
    there = any(x.device.type != "cpu" for x in tensors)
    return there and any(isinstance(x, torch.Tensor) and x.device.type == "cpu" for x in results)


def _by_mask(args: tuple) -> bool:
    """Whether an index has a mask, so that the size of the result follows from values."""
    indices = args[1] if len(args) > 1 else ()
    return any(isinstance(i, torch.Tensor) and i.dtype in (torch.bool, torch.uint8) for i in indices)


@contextmanager
def _wrapped(owner: type, name: str, wrap: Callable[[Callable], Callable]) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, wrap(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


def _unwatched(run: Callable) -> Callable:
    """Triton's interpreter, in which thousands of functions call each other. It is for a CPU, whose times mean nothing:
    nobody watches how deep it goes."""

    def unwatched(*args: Any, **kwargs: Any) -> Any:
        watching = sys.gettrace()
        sys.settrace(None)
        try:
            return run(*args, **kwargs)
        finally:
            sys.settrace(watching)

    return unwatched
