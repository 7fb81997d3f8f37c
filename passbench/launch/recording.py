"""A CUDA graph of one function's launches, and what carries inputs into it and results out of it."""

import gc
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from passbench.launch.allocation import empty_on_current_device
from passbench.launch.bound_kernel import ALIGNMENT
from passbench.launch.copies import SLOTS, CopyLaunch

_WARM_UP_CALLS = 2


class Recording:
    """The launches of `function` on copies of `arguments`, recorded on the current device.

    Tensors without gaps are *flat*: one launch copies the inputs' bytes, and notes where the results are wanted; the
    graph's last launch copies the results there. Other tensors are copied by torch, one by one.
    """

    def __init__(self, function: Callable, arguments: Sequence[Any]) -> None:
        self._lock = threading.Lock()  # between a copy into the buffers and the replay nobody else may copy
        tensors = [n for n, a in enumerate(arguments) if isinstance(a, torch.Tensor)]
        own = list(arguments)
        with torch.inference_mode(False), torch.no_grad():  # buffers that later calls of any mode may write to
            for n in tensors:
                x = arguments[n]
                own[n] = _like(x)
                stepping(own[n]).copy_(stepping(x))
        self._own = own  # the graph reads them
        self._flat = [n for n in tensors if is_flat(own[n])]
        self._others = [n for n in tensors if n not in self._flat]
        self._all_flat = len(self._flat) == len(arguments)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.no_grad(), torch.cuda.stream(stream):
            for _ in range(_WARM_UP_CALLS):  # kernels are compiled, and libraries allocate a workspace for a stream
                warm = _leaves(function(*own))
        torch.cuda.synchronize()
        sizes = [_bytes(own[n]) for n in self._flat]
        self._ways_in, ways_out = _ways(sizes, [a for a in warm if _is_flat_result(a)], [own[n] for n in self._flat])
        self._graph = torch.cuda.CUDAGraph()
        collecting = gc.isenabled()
        gc.disable()  # what a collection frees during a capture may have to wait for the device
        try:
            with (
                torch.no_grad(),
                torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"),
            ):
                self._result = function(*own)
                self._leaves = _leaves(self._result)
                if [_kind(a) for a in self._leaves] != [_kind(a) for a in warm]:
                    raise TypeError("a captured function returns results of the same kinds in every call")
                given = [0] * len(self._flat) + [a.data_ptr() for a in self._leaves if _is_flat_result(a)]
                for first, launch in ways_out:
                    launch(tuple(given[first : first + SLOTS]), stream.cuda_stream)
        finally:
            if collecting:
                gc.enable()
        self._ways_out = ways_out  # the graph reads their tables
        self._layouts = [(tuple(a.shape), a.stride(), a.dtype) for a in self._leaves if _is_flat_result(a)]
        self._carried = [_is_flat_result(a) for a in self._leaves]

    def replay(self, arguments: Sequence[Any], stream: int) -> Any:
        """What the function returns for these arguments, in fresh memory. `stream` is the current one."""
        given = arguments if self._all_flat else [arguments[n] for n in self._flat]
        fresh = [empty_on_current_device(*layout) for layout in self._layouts]
        addresses = [x.data_ptr() for x in given] + [x.data_ptr() for x in fresh]
        if math.gcd(ALIGNMENT, *addresses) != ALIGNMENT:
            given = [x if x.data_ptr() % ALIGNMENT == 0 else _like(x).copy_(x) for x in map(stepping, given)]
            addresses = [x.data_ptr() for x in given] + [x.data_ptr() for x in fresh]
        with self._lock:
            for n in self._others:
                stepping(self._own[n]).copy_(stepping(arguments[n]))
            for first, launch in self._ways_in:
                launch(tuple(addresses[first : first + SLOTS]), stream)
            self._graph.replay()
            leaves = fresh if all(self._carried) else self._with_others(fresh)
        return leaves[0] if not isinstance(self._result, tuple | list) else type(self._result)(leaves)

    def _with_others(self, fresh: Sequence[torch.Tensor]) -> list[Any]:
        """All results in order: the flat ones, copies of the others, and what is no tensor."""
        flat = iter(fresh)
        return [
            next(flat) if carried else _copy(a) if isinstance(a, torch.Tensor) else a
            for a, carried in zip(self._leaves, self._carried, strict=True)
        ]


_Ways = list[tuple[int, CopyLaunch]]
"""Launches, and the number of the first tensor that each copies."""


def _ways(sizes: Sequence[int], results: Sequence[torch.Tensor], own: Sequence[torch.Tensor]) -> tuple[_Ways, _Ways]:
    """Launches that copy inputs of these sizes to `own`, and those that copy results like `results` out."""
    ways_in, ways_out = [], []
    inward = [*sizes, *[0] * len(results)]
    outward = [0] * len(sizes) + [_bytes(x) for x in results]
    addresses = [x.data_ptr() for x in own] + [0] * len(results)
    for first in range(0, len(inward), SLOTS):
        chunk = slice(first, first + SLOTS)
        places = torch.tensor((addresses[chunk] + [0] * SLOTS)[:SLOTS], dtype=torch.int64, device="cuda")
        noted = torch.zeros(SLOTS, dtype=torch.int64, device="cuda")
        ways_in.append((first, CopyLaunch(inward[chunk], places, noted)))
        if any(outward[chunk]):
            ways_out.append((first, CopyLaunch(outward[chunk], noted, None)))
    return ways_in, ways_out


def _leaves(result: Any) -> list[Any]:
    leaves = list(result) if isinstance(result, tuple | list) else [result]
    if not all(a is None or isinstance(a, torch.Tensor | int | float) for a in leaves):
        raise TypeError("a captured function returns tensors, numbers and None")
    return leaves


def _kind(leaf: Any) -> tuple:
    if not isinstance(leaf, torch.Tensor):
        return (type(leaf),)
    return leaf.dtype, leaf.device, leaf.shape, leaf.stride(), _is_flat_result(leaf)


def _bytes(x: torch.Tensor) -> int:
    x = stepping(x)
    return x.numel() * x.element_size()


def is_flat(x: torch.Tensor) -> bool:
    """Whether the elements, those aside that `expand` repeats, fill the memory from the first on without a gap."""
    extent = 1
    x = stepping(x)
    for step, size in sorted((step, size) for size, step in zip(x.shape, x.stride(), strict=True) if size > 1):
        if step != extent:
            return False
        extent *= size
    return True


def _is_flat_result(x: Any) -> bool:
    """Whether the graph can copy this result by itself."""
    return (
        isinstance(x, torch.Tensor)
        and x.is_cuda
        and x.get_device() == torch.cuda.current_device()
        and not (x.is_conj() or x.is_neg() or overlaps_itself(x))
        and is_flat(x)
        and x.data_ptr() % ALIGNMENT == 0
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


def stepping(x: torch.Tensor) -> torch.Tensor:
    """The tensor's elements without those that `expand` repeats."""
    sizes = [1 if step == 0 and size > 1 else size for size, step in zip(x.shape, x.stride(), strict=True)]
    return x if sizes == list(x.shape) else x.as_strided(sizes, x.stride())


def _like(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)


def _copy(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().clone() if overlaps_itself(x) else _like(x).copy_(x)
