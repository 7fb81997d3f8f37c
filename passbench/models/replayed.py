"""A function of tensors as one CUDA graph: its inputs copied in, one launch, its outputs copied out.

Where all of them are flat and small, kernels of the graph copy them, first the inputs and last the outputs
(`passbench.launch.graph_copies`). Else torch copies them one by one.
"""

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor

import torch

from passbench.launch.copies import can_copy
from passbench.launch.graph_copies import GraphCopies, bytes_of, is_flat_result
from passbench.launch.recording import random_offset
from storage.errors import PassNetError

WARM_UPS = 3
"""Calls before the capture: they compile, tune and fill workspaces, none of which a capture may do."""
MOST_BYTES = 16 << 20
"""Inputs and outputs of more bytes together are copied by torch: there the launches are the lesser part."""


_CAPTURING = threading.RLock()
"""Held by the thread that captures: a wait for the GPU in one breaks the capture of another, and how waits are refused
is a setting of the process."""


class NotCaptured(PassNetError):
    """The function cannot be captured as a CUDA graph; the message says why."""


class ReplayedGraph:
    """The function, captured with inputs like `moving`, on their device. Outputs are new tensors in every call.

    Calls of several threads take turns, and so do captures; calls on several streams wait for each other on the GPU.
    Raises NotCaptured.
    """

    def __init__(self, function: Callable[..., Sequence[torch.Tensor]], moving: Sequence[torch.Tensor]) -> None:
        try:
            with _CAPTURING:
                self._capture(function, moving)
        except (RuntimeError, ValueError, TypeError, AssertionError) as error:
            lines = str(error).splitlines()
            raise NotCaptured(f"no CUDA graph: {type(error).__name__}: {lines[0] if lines else ''}") from error
        self._lock = threading.Lock()
        self._stream: torch.cuda.Stream | None = None

    def _capture(self, function: Callable[..., Sequence[torch.Tensor]], moving: Sequence[torch.Tensor]) -> None:
        self.device = next((x.device for x in moving), torch.device("cuda", torch.cuda.current_device()))
        with torch.no_grad(), torch.cuda.device(self.device):
            self._own = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device) for x in moving]
            for own, x in zip(self._own, moving, strict=True):
                own.copy_(x)
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            begin = random_offset()
            warm = self._warm_up(function, stream)
            draws = random_offset() != begin  # random numbers, for which torch prepares each replay
            self._copies = GraphCopies(self._own, warm) if _carried(self._own, warm) and not draws else None
            del warm
            graph = torch.cuda.CUDAGraph(keep_graph=True)
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                if self._copies is not None:
                    self._copies.record_in(stream.cuda_stream)
                outputs = list(function(*self._own))
                if self._copies is not None:
                    if not _carried(self._own, outputs):
                        raise ValueError("its outputs lie otherwise in the capture than before")
                    self._copies.record_out(outputs, stream.cuda_stream)
            graph.instantiate()
            if self._copies is not None:
                self._copies.bind(graph.raw_cuda_graph_exec())
        self._graph = graph
        self._outputs = outputs
        self._function = function  # its weights and workspaces must live as long as the graph
        self._copied = _copying(outputs)

    def _warm_up(
        self, function: Callable[..., Sequence[torch.Tensor]], stream: torch.cuda.Stream
    ) -> list[torch.Tensor]:
        """Call the function as `WARM_UPS` says, and once more to see that it does not wait. Returns its outputs."""
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                warm = list(function(*self._own))
            with _waits_refused():
                function(*self._own)
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        return warm

    def __call__(self, *moving: torch.Tensor) -> list[torch.Tensor]:
        """The function's outputs for inputs of the captured shapes, strides, dtypes and device, which nobody checks
        here."""
        with self._lock:
            stream = torch.cuda.current_stream(self.device)
            if stream != self._stream:
                if self._stream is not None:
                    stream.wait_stream(self._stream)
                self._stream = stream
            if self._copies is not None:
                return self._carry(moving, stream.cuda_stream)
            if self._own:
                torch._foreach_copy_(self._own, moving)
            self._graph.replay()
            return self._copied(self._outputs)

    def _carry(self, moving: Sequence[torch.Tensor], stream: int) -> list[torch.Tensor]:
        if torch.cuda.current_device() != self.device.index:
            with torch.cuda.device(self.device):
                return self._carry(moving, stream)
        return self._copies.replay(moving, stream)


def captured_in(
    thread: Executor, function: Callable[..., Sequence[torch.Tensor]], moving: Sequence[torch.Tensor]
) -> ReplayedGraph:
    """The function, captured by another thread that stands in for this one. Raises NotCaptured."""
    stream = torch.cuda.current_stream(next((x.device for x in moving), None))

    def capture() -> ReplayedGraph:
        with torch.cuda.stream(stream):
            return ReplayedGraph(function, moving)

    return thread.submit(capture).result()


def _carried(own: Sequence[torch.Tensor], outputs: Sequence[object]) -> bool:
    """Whether kernels of the graph can copy all inputs and outputs: each flat, on the current device, in memory of its
    own, small together."""
    if not (can_copy() and all(is_flat_result(x) for x in (*own, *outputs))):
        return False
    places = [x.untyped_storage().data_ptr() for x in outputs if x.numel()]
    return len(set(places)) == len(places) and sum(bytes_of(x) for x in (*own, *outputs)) <= MOST_BYTES


@contextlib.contextmanager
def _waits_refused() -> Iterator[None]:
    """Operators that wait for the GPU raise RuntimeError: in a capture they would leave torch's allocator unsettled."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls the mode a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def _copying(outputs: Sequence[torch.Tensor]) -> Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]:
    """How to copy outputs like these: each with its strides, and those that share memory into memory that they
    share."""
    for x in outputs:
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"an output is a {type(x).__name__}, not a tensor")
    places = [x.untyped_storage().data_ptr() for x in outputs]
    if len(set(places)) == len(places):
        copies = [_copier(x) for x in outputs]
        return lambda made: [copy(x) for copy, x in zip(copies, made, strict=True)]
    first = [places.index(place) for place in places]

    def copy_memory(made: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        memory = {n: _memory(made[n]).clone().untyped_storage() for n in set(first)}
        return [
            torch.empty(0, dtype=x.dtype, device=x.device).set_(memory[n], x.storage_offset(), x.shape, x.stride())
            for n, x in zip(first, made, strict=True)
        ]

    return copy_memory


def _memory(x: torch.Tensor) -> torch.Tensor:
    """All bytes of the memory that a tensor lies in."""
    return torch.empty(0, dtype=torch.uint8, device=x.device).set_(x.untyped_storage())


def _copier(output: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """How to copy an output with its strides."""
    dense = torch.empty_like(output).stride() == output.stride()
    if dense:
        return torch.Tensor.clone
    shape, stride = output.shape, output.stride()
    if any(step == 0 and size > 1 for size, step in zip(shape, stride, strict=True)):
        narrow = tuple(slice(0, 1) if step == 0 else slice(None) for step in stride)
        return lambda x: _strided(x[narrow]).expand(shape)
    return _strided


def _strided(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(x)
