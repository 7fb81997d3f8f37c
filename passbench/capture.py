"""A function of a pass as a CUDA graph: many launches for the price of a few. Trusted code that a pass may use.

The first call with arguments of some layout records the function's launches on buffers of this module's own. Later
calls copy their inputs into those buffers, replay the launches, and copy the results into fresh tensors. So a call's
outputs are computed within the call, from that call's inputs, and are its caller's.
"""

import gc
from collections import OrderedDict
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import torch

MOST_RECORDINGS = 16
"""So many recordings are kept, the last used. Each holds copies of its inputs, and its results and intermediates."""
MOST_BYTES = 256 << 20
"""Inputs of more bytes are not copied: launches are cheaper."""
_WARM_UP_CALLS = 2
_ARGUMENTS = (torch.Tensor, int, float, str, torch.dtype, type(None))


class GraphCapture:
    """`captured(function, *arguments)` returns what `function(*arguments)` returns.

    `function` is a plain function that computes new tensors from its arguments, tensors and numbers, and writes to none
    of them. It is run as it is where a recording cannot be made or would not pay: on a CPU, inside of another CUDA
    graph's capture, where gradients are needed, and on inputs that overlap themselves or are large. Results are a
    tensor, or a tuple or list of tensors, numbers and None.

    Raises TypeError on anything but a function, on one with variables of another around it, on containers as arguments
    and on other results, and what CUDA raises where the function waits for the device.
    """

    def __init__(self) -> None:
        self._recordings: OrderedDict[tuple, _Recording | None] = OrderedDict()

    def __call__(self, function: FunctionType, *arguments: Any) -> Any:
        if type(function) is not FunctionType or function.__closure__ is not None:
            raise TypeError("captured takes a function that needs nothing but its arguments")
        if not all(isinstance(a, _ARGUMENTS) for a in arguments):
            raise TypeError("captured takes tensors and numbers one by one, no containers")
        if not torch.cuda.is_initialized() or torch.cuda.is_current_stream_capturing():
            return function(*arguments)
        stream = torch.cuda.current_stream().cuda_stream
        layouts = [
            (a.dtype, a.device, a.shape, a.stride()) if isinstance(a, torch.Tensor) else (type(a), a) for a in arguments
        ]
        key = (function, stream, *layouts)
        if key in self._recordings:
            recording = self._recordings[key]
            self._recordings.move_to_end(key)
        elif torch.are_deterministic_algorithms_enabled():
            return function(*arguments)  # which fills fresh memory: it is no part of the function
        else:
            recording = self._recordings[key] = _Recording(function, arguments) if _pays(arguments) else None
            if len(self._recordings) > MOST_RECORDINGS:
                torch.cuda.synchronize()
                self._recordings.popitem(last=False)
        if recording is None or (torch.is_grad_enabled() and _needs_gradients(arguments)):
            return function(*arguments)
        return recording.replay(arguments)


captured = GraphCapture()
"""The one that passes import."""


def _needs_gradients(arguments: Sequence[Any]) -> bool:
    return any(a.requires_grad for a in arguments if isinstance(a, torch.Tensor))


def _pays(arguments: Sequence[Any]) -> bool:
    tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
    return (
        bool(tensors)
        and len({a.device for a in tensors}) == 1
        and tensors[0].is_cuda
        and all(type(a) is torch.Tensor and not overlaps_itself(_stepping(a)) for a in tensors)
        and sum(a.numel() * a.element_size() for a in tensors) <= MOST_BYTES
    )


def overlaps_itself(x: torch.Tensor) -> bool:
    """Whether two of the elements may lie in the same place."""
    if x.numel() == 0:
        return False
    extent = 1
    for step, size in sorted((step, size) for size, step in zip(x.shape, x.stride(), strict=True) if size > 1):
        if step < extent:
            return True
        extent += (size - 1) * step
    return False


def _stepping(x: torch.Tensor) -> torch.Tensor:
    """The tensor's elements without those that `expand` repeats."""
    sizes = [1 if step == 0 and size > 1 else size for size, step in zip(x.shape, x.stride(), strict=True)]
    return x if sizes == list(x.shape) else x.as_strided(sizes, x.stride())


def _by_dtype(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """The numbers of the tensors of each dtype: those that one kernel copies."""
    groups: dict[torch.dtype, list[int]] = {}
    for number, x in enumerate(tensors):
        groups.setdefault(x.dtype, []).append(number)
    return list(groups.values())


class _Recording:
    """The launches of one function on copies of arguments of one layout."""

    def __init__(self, function: Callable, arguments: Sequence[Any]) -> None:
        tensors = [n for n, a in enumerate(arguments) if isinstance(a, torch.Tensor)]
        own = list(arguments)
        for n in tensors:
            x = arguments[n]
            own[n] = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
        self._inputs = [_stepping(own[n]) for n in tensors]
        self._expanded = [self._inputs[i] is not own[n] for i, n in enumerate(tensors)]
        self._tensors = tensors
        self._groups = [(group, [self._inputs[i] for i in group]) for group in _by_dtype(self._inputs)]
        self._copy_in(arguments)
        self._graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.no_grad(), torch.cuda.stream(stream):
            for _ in range(_WARM_UP_CALLS):  # kernels are compiled, and libraries allocate a workspace for a stream
                function(*own)
        torch.cuda.synchronize()
        collecting = gc.isenabled()
        gc.disable()  # what a collection frees during a capture may have to wait for the device
        try:
            with (
                torch.no_grad(),
                torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"),
            ):
                self._result = function(*own)
        finally:
            if collecting:
                gc.enable()
        self._own = own  # the graph reads them
        leaves = list(self._result) if isinstance(self._result, tuple | list) else [self._result]
        if not all(a is None or isinstance(a, torch.Tensor | int | float) for a in leaves):
            raise TypeError("a captured function returns tensors, numbers and None")
        self._leaves = leaves
        self._results = [a for a in leaves if isinstance(a, torch.Tensor)]
        self._plain = len(self._results) == 1 or any(overlaps_itself(a) for a in self._results)
        self._result_groups = _by_dtype(self._results)

    def replay(self, arguments: Sequence[Any]) -> Any:
        """What the function returns for these arguments, in fresh memory."""
        self._copy_in(arguments)
        self._graph.replay()
        fresh = iter(self._copies_of_results())
        leaves = [next(fresh) if isinstance(a, torch.Tensor) else a for a in self._leaves]
        return leaves[0] if not isinstance(self._result, tuple | list) else type(self._result)(leaves)

    def _copy_in(self, arguments: Sequence[Any]) -> None:
        given = [arguments[n] for n in self._tensors]
        for number, expanded in enumerate(self._expanded):
            if expanded:
                given[number] = _stepping(given[number])
        for group, places in self._groups:
            if len(group) == 1:
                places[0].copy_(given[group[0]])
            else:
                torch._foreach_copy_(places, [given[n] for n in group])

    def _copies_of_results(self) -> list[torch.Tensor]:
        if self._plain:
            return [a.contiguous().clone() if overlaps_itself(a) else _clone(a) for a in self._results]
        fresh = [_like(a) for a in self._results]
        for group in self._result_groups:
            torch._foreach_copy_([fresh[n] for n in group], [self._results[n] for n in group])
        return fresh


def _like(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)


def _clone(x: torch.Tensor) -> torch.Tensor:
    return _like(x).copy_(x)
