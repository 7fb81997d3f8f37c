"""Inputs of the calls of a CUDA graph as PassBench's device clock has them: each call's in memory of its own, written
anew before a replay, when nothing else is in the GPU's caches.

What calls read again and again comes from a cache. PassBench's calls read most of it from memory, where a kernel of few
loads at a time waits longer. Searches that timed calls on three sets of inputs took other kernels than PassBench would
have: their clocks had `fusible-a807524d77de` at 6.3 times eager by its own kernel and by TorchInductor's, and
`fusible-e2392cf83591` at 3.4 and 3.2; PassBench's had 3.5 and 5.3, and 1.8 and 2.6
(`benchmarks/passbench/h100_table_276`).
"""

from collections.abc import Sequence
from functools import cache

import torch

Row = Sequence[torch.Tensor | int]

MOST_BYTES = 256 << 20
"""What the inputs of all calls of a graph may take: several times what the L2 cache of a GPU holds. A search keeps some
graphs for a dozen variants, and several searches share a GPU."""


def row_bytes(row: Row) -> int:
    """Bytes of memory that the inputs of one call lie in."""
    return sum(x.untyped_storage().nbytes() for x in row if isinstance(x, torch.Tensor))


def copied(x: torch.Tensor | int) -> torch.Tensor | int:
    """The same in other memory, gaps included."""
    if not isinstance(x, torch.Tensor):
        return x
    memory = torch.empty(0, dtype=x.dtype, device=x.device)
    return memory.set_(x.untyped_storage().clone(), x.storage_offset(), x.shape, x.stride())


def all_bytes(x: torch.Tensor) -> torch.Tensor:
    """The memory that a tensor lies in, gaps included, as bytes."""
    return torch.empty(0, dtype=torch.uint8, device=x.device).set_(x.untyped_storage())


class OwnInputs:
    """`rows`: copies of the given inputs of calls, gaps in memory included. The given ones must stay as they are."""

    def __init__(self, given: Sequence[Row]) -> None:
        self.rows: list[Row] = [tuple(map(copied, row)) for row in given]
        # PassBench copies all places of one input, then those of the next: what comes last stays in the cache.
        places = [n for n, x in enumerate(given[0]) if isinstance(x, torch.Tensor)] if given else []
        pairs = [(own[n], row[n]) for n in places for own, row in zip(self.rows, given, strict=True)]
        some = [(all_bytes(to), all_bytes(x)) for to, x in pairs if x.untyped_storage().nbytes()]
        self._to, self._from = [to for to, _ in some], [source for _, source in some]

    def write(self) -> None:
        """Write all inputs anew, behind what leaves nothing else in the caches; does not wait."""
        if self._to and self._to[0].is_cuda:
            _filler(self._to[0].device).zero_()
        if self._to:
            torch._foreach_copy_(self._to, self._from)


@cache
def _filler(device: torch.device) -> torch.Tensor:
    """Twice as large as the device's L2 cache."""
    size = 2 * torch.cuda.get_device_properties(device).L2_cache_size
    return torch.empty(size, dtype=torch.uint8, device=device)
