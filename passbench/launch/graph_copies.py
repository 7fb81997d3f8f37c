"""Inputs carried into a CUDA graph by its first kernel, and its results out of it by its last."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from passbench.launch.allocation import empty_on_current_device
from passbench.launch.bound_kernel import ALIGNMENT
from passbench.launch.copies import SLOTS, CopyLaunch
from passbench.launch.native_launch import last_node, native

_Copies = list[tuple[int, CopyLaunch]]
"""Launches, and the number of the first tensor that each copies."""


class GraphCopies:
    """The copies of a graph that reads the buffers `own` and gives results like `results`: all flat, on the current
    device. The graph needs it as long as it is replayed.

    They are nodes of the graph: `record_in` at the capture's beginning, `record_out` at its end, `bind` once it is
    instantiated. Before each replay the first ones get the addresses of that call's tensors.
    """

    def __init__(self, own: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> None:
        self._own = [x.data_ptr() for x in own]
        self.layouts = [(tuple(x.shape), x.stride(), x.dtype) for x in results]
        self._copies_in, self._copies_out = _copies_of(own, results)
        self._nodes: list[int] = []
        self.launches: Any = None
        """What launches the graph with other tensors: inputs, results, and those at `places`."""
        self.places = tuple([place for _, launch in self._copies_in for place in launch.behind])
        """Addresses of what the launches read and write beside tensors."""

    def record_in(self, stream: int) -> None:
        """In the capture: copy tensors that are not known yet to `own`, and note where results are wanted."""
        unknown = [*self._own, *[0] * len(self.layouts)]
        for first, launch in self._copies_in:
            launch(tuple(unknown[first : first + SLOTS]), stream)
            self._nodes.append(last_node(stream))

    def record_out(self, results: Sequence[torch.Tensor], stream: int) -> None:
        """In the capture: copy the graph's results to where they are wanted."""
        given = [0] * len(self._own) + [x.data_ptr() for x in results]
        for first, launch in self._copies_out:
            launch(tuple(given[first : first + SLOTS]), stream)

    def bind(self, graph: int) -> None:
        """The graph is instantiated as this one: from now on there are `launches`."""
        steps, tensors = [], len(self._own) + len(self.layouts)
        end = tensors
        for first, launch in self._copies_in:
            begin, end = end, end + len(launch.behind)
            steps.append((launch.kernel, (*range(first, min(first + SLOTS, tensors)), *range(begin, end))))
        self.launches = native().Launches(end, tuple(steps), False, graph, tuple(self._nodes))

    def replay(self, given: Sequence[torch.Tensor], stream: int) -> list[torch.Tensor]:
        """The graph's results for tensors of the buffers' layouts, in fresh memory."""
        fresh = [empty_on_current_device(*layout) for layout in self.layouts]
        addresses = [x.data_ptr() for x in (*given, *fresh)]
        if math.gcd(ALIGNMENT, *addresses) != ALIGNMENT:
            given = [x if x.data_ptr() % ALIGNMENT == 0 else like(x).copy_(x) for x in map(stepping, given)]
            addresses = [x.data_ptr() for x in (*given, *fresh)]
        self.launches.run((*addresses, *self.places), stream)
        return fresh


def _copies_of(own: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> tuple[_Copies, _Copies]:
    """Launches that copy inputs to `own`, and those that copy results like `results` out."""
    copies_in, copies_out = [], []
    inward = [*map(bytes_of, own), *[0] * len(results)]
    outward = [0] * len(own) + [bytes_of(x) for x in results]
    addresses = [x.data_ptr() for x in own] + [0] * len(results)
    for first in range(0, len(inward), SLOTS):
        chunk = slice(first, first + SLOTS)
        places = torch.tensor((addresses[chunk] + [0] * SLOTS)[:SLOTS], dtype=torch.int64, device="cuda")
        noted = torch.zeros(SLOTS, dtype=torch.int64, device="cuda")
        copies_in.append((first, CopyLaunch(inward[chunk], places, noted)))
        if any(outward[chunk]):
            copies_out.append((first, CopyLaunch(outward[chunk], noted, None)))
    return copies_in, copies_out


def bytes_of(x: torch.Tensor) -> int:
    """The memory of a tensor's elements, those aside that `expand` repeats."""
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


def is_flat_result(x: object) -> bool:
    """Whether `GraphCopies` can carry a result of a graph on the current device."""
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


def like(x: torch.Tensor) -> torch.Tensor:
    """Memory for a tensor like this one."""
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
