"""A CUDA graph of one function's launches, and what carries inputs into it and results out of it."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from passbench.launch.branches import branching, leaves_of
from passbench.launch.garbage_collection import without_collection
from passbench.launch.graph_copies import GraphCopies, is_flat, is_flat_result, like, overlaps_itself, stepping
from passbench.launch.replayed_call import Replay

_WARM_UP_CALLS = 2


class Recording:
    """The launches of `function` on copies of `arguments`, recorded on the current device.

    Tensors without gaps are *flat*: the graph's first kernel copies the inputs' bytes, and notes where the results are
    wanted; its last copies the results there. Other tensors are copied by torch, one by one.
    """

    def __init__(self, function: Callable, arguments: Sequence[Any]) -> None:
        self._lock = threading.Lock()  # between a copy into the buffers and the replay nobody else may copy
        tensors = [n for n, a in enumerate(arguments) if isinstance(a, torch.Tensor)]
        own = self._own = _copied(arguments)  # the graph reads them
        self._flat = [n for n in tensors if is_flat(own[n])]
        self._others = [n for n in tensors if n not in self._flat]
        self._all_flat = len(self._flat) == len(arguments)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        begin = random_offset()
        warm = self._warm_up(function, stream)
        self.draws = random_offset() != begin
        """Whether the function draws random numbers: torch would have to prepare each replay."""
        self._copies = GraphCopies([own[n] for n in self._flat], [a for a in warm if is_flat_result(a)])
        self._graph = torch.cuda.CUDAGraph(keep_graph=True)
        self._record(function, warm, stream)
        self._carried = [is_flat_result(a) for a in self._leaves]
        self._graph.instantiate()
        self._carries = bool(self._flat) or any(self._carried)
        if self._carries:
            self._copies.bind(self._graph.raw_cuda_graph_exec())

    def _warm_up(self, function: Callable, stream: torch.cuda.Stream) -> list[Any]:
        """Call the function until kernels are compiled and libraries have their workspaces for the stream. Returns its
        results."""
        with torch.no_grad(), torch.cuda.stream(stream):
            for _ in range(_WARM_UP_CALLS):
                with branching(self._own):
                    warm = leaves_of(function(*self._own))
        torch.cuda.synchronize()
        return warm

    def _record(self, function: Callable, warm: Sequence[Any], stream: torch.cuda.Stream) -> None:
        """Record the function's launches between the copies. Its results are to be like `warm`."""
        graph = torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local")
        with torch.no_grad(), without_collection(), graph:  # what is freed in a capture may have to wait for the device
            self._copies.record_in(stream.cuda_stream)
            with branching(self._own):
                self._result = function(*self._own)
            self._leaves = leaves_of(self._result)
            if [_kind(a) for a in self._leaves] != [_kind(a) for a in warm]:
                raise TypeError("a captured function returns results of the same kinds in every call")
            self._copies.record_out([a for a in self._leaves if is_flat_result(a)], stream.cuda_stream)

    def in_c(self) -> Replay | None:
        """How a function in C replays it; None where it carries other things than flat tensors, or returns a list."""
        single = isinstance(self._result, torch.Tensor)
        if not (self._carries and self._all_flat and all(self._carried) and (single or type(self._result) is tuple)):
            return None
        copies = self._copies
        return Replay(len(self._flat), copies.layouts, single, copies.places, copies.launches, self)

    def replay(self, arguments: Sequence[Any], stream: int) -> Any:
        """What the function returns for these arguments, in fresh memory. `stream` is the current one."""
        given = arguments if self._all_flat else [arguments[n] for n in self._flat]
        with self._lock:
            for n in self._others:
                stepping(self._own[n]).copy_(stepping(arguments[n]))
            if self._carries:
                fresh = self._copies.replay(given, stream)
            else:
                fresh = []
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


def random_offset() -> int:
    """How many random numbers the current device has drawn, in torch's count: what draws some moves it."""
    return torch.cuda.default_generators[torch.cuda.current_device()].get_offset()


def _copied(arguments: Sequence[Any]) -> list[Any]:
    """The arguments with buffers in place of tensors, copies that later calls of any mode may write to."""
    own = list(arguments)
    with torch.inference_mode(False), torch.no_grad():
        for n, x in enumerate(arguments):
            if isinstance(x, torch.Tensor):
                own[n] = like(x)
                stepping(own[n]).copy_(stepping(x))
    return own


def _kind(leaf: Any) -> tuple:
    if not isinstance(leaf, torch.Tensor):
        return (type(leaf),)
    return leaf.dtype, leaf.device, leaf.shape, leaf.stride(), is_flat_result(leaf)


def _copy(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().clone() if overlaps_itself(x) else like(x).copy_(x)
