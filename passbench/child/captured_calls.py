"""Calls captured in one CUDA graph and replayed: the child's part of the device clock.

A capture runs the Python of every call once and records its kernels; a replay runs the kernels alone. Inputs lie at
fixed places of the shared memory, where the parent writes new values before each replay. The captured outputs are all
kept, so that no two calls share memory in the graph's pool.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch

from passbench.child.outputs import flatten
from passbench.launch.garbage_collection import without_collection

_WARM_UP_CALLS = 2
_WAIT_CYCLES = 600_000
"""A replay first waits for 0.3 ms. Meanwhile the host hands over the rest of the graph, so that it holds up no call."""

_PADS, _PAD_BYTES = 4, 512
"""After each captured call so many small blocks are taken and kept until the capture ends. Otherwise the intermediate
results of all calls would lie in the same few blocks. The time to memory depends on the address, by up to 60 ns a
kernel: one process was 3 to 5 % slower than another for as long as both lived (benchmarks/passbench/h200_noise)."""

_POISON = 0xFF  # bytes of a NaN in every floating dtype


class CapturedCalls:
    """One CUDA graph of `call` on each of `rows`, the inputs of so many calls; needs a GPU.

    `before` and `after` are captured too: they get a call's number, `after` also its result. Raises whatever `call` or
    CUDA raises: a call that waits for the device, such as `.item()`, cannot be captured. The process is of no use after
    that.
    """

    def __init__(
        self,
        call: Callable,
        rows: Sequence[Sequence[torch.Tensor | int]],
        before: Callable[[int], None] = lambda index: None,
        after: Callable[[int, Any], None] = lambda index, result: None,
    ) -> None:
        self.rows, self.results = rows, []
        self._written: list[torch.Tensor] | None = None
        self._poison: list[torch.Tensor] = []
        self._graph = torch.cuda.CUDAGraph()
        stream = _stream(torch.cuda.current_device())
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP_CALLS):  # libraries allocate a workspace for a stream in their first call on it
                call(*rows[0])
        torch.cuda.synchronize()
        graph = torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local")
        with without_collection(), graph:  # what is freed in a capture may have to wait for the device
            torch.cuda._sleep(_WAIT_CYCLES)
            pads = []
            for index, inputs in enumerate(rows):
                before(index)
                self.results.append(call(*inputs))
                after(index, self.results[-1])
                pads += [torch.empty(_PAD_BYTES, dtype=torch.uint8, device="cuda") for _ in range(_PADS)]

    def replay(self) -> None:
        """Run all calls on the current stream; does not wait."""
        self._graph.replay()

    def poison(self) -> None:
        """Overwrite the memory of all results, but not that of the inputs."""
        if self._written is None:
            self._written = list(self._own_memory())
            most = max((whole.numel() for whole in self._written), default=0)
            poison = torch.full((most,), _POISON, dtype=torch.uint8, device="cuda")
            self._poison = [poison[: whole.numel()] for whole in self._written]
        if self._written:
            torch._foreach_copy_(self._written, self._poison)  # one kernel for all

    def _own_memory(self) -> Iterator[torch.Tensor]:
        """The bytes of each allocation that results lie in, those of inputs aside."""
        kept = {_address(x) for row in self.rows for x in row if isinstance(x, torch.Tensor)}
        leaves = (x for result in self.results for x in flatten(result))
        own = {_address(x): x for x in leaves if isinstance(x, torch.Tensor) and x.is_cuda and x.numel()}
        for address, tensor in own.items():
            if address not in kept:
                whole = torch.empty(0, dtype=torch.uint8, device=tensor.device)
                yield whole.set_(tensor.untyped_storage())


class EmptyReplay:
    """A CUDA graph of one kernel that writes one number: what a replay costs beside its calls, its wait included."""

    def __init__(self, device: torch.device) -> None:
        self._number = torch.zeros(1, device=device)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            torch.cuda._sleep(_WAIT_CYCLES)
            self._number.zero_()

    def replay(self) -> None:
        """Run the kernel on the current stream; does not wait."""
        self._graph.replay()


@cache
def _stream(device: int) -> torch.cuda.Stream:
    """The stream of all captures on a device: on a stream that a process has not used, libraries allocate workspaces
    and the functions that a pass has `captured` are recorded again."""
    return torch.cuda.Stream(device)


def _address(x: torch.Tensor) -> int:
    return x.untyped_storage().data_ptr()
