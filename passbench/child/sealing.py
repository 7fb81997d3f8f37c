"""Sealed calls of a timed exchange: nobody can compute them before their turn, or after it.

The inputs of a sealed call arrive when the call before has ended, and its outputs are taken as soon as it ends itself.
Which calls are sealed is drawn for every exchange, and no code of a pass runs between the two copies but that call: a
pass that computes several calls' outputs at once, earlier or later, gives wrong outputs for them. Both copies are
outside the time of a call, in eager's worker too.
"""

from collections.abc import Sequence
from typing import Any

import torch

from passbench.child.outputs import BadOutput
from passbench.ipc.messages import Batch, Block
from passbench.ipc.shared_memory import SharedMemory, output_views, place_bytes


class SealedCalls:
    """Delivers the inputs of an exchange's sealed calls. `calls` are their numbers."""

    def __init__(self, shared: SharedMemory, batch: Batch) -> None:
        self.calls = frozenset(batch.sealed)
        self._shared, self._batch = shared, batch
        blocks = [block for block in batch.inputs if isinstance(block, Block)]
        self._deliveries = {
            call: (
                [place_bytes(shared, block, batch.order[call]) for block in blocks],
                [place_bytes(shared, block, place) for block in blocks],
            )
            for call, place in zip(batch.sealed, batch.late, strict=False)
            if blocks
        }

    def deliver(self, call: int) -> None:
        """Put the call's inputs in their place; nothing where they are there already."""
        if call in self._deliveries:
            torch._foreach_copy_(*self._deliveries[call])

    def check_unchanged(self, outputs: Sequence[Sequence[Any]]) -> None:
        """What sealed calls have returned is still what was taken of it; raises BadOutput."""
        for number, block in enumerate(self._batch.outputs):
            if block is None or not self.calls:
                continue
            places = output_views(self._shared, block)
            for call in self.calls:
                value = torch.as_tensor(outputs[call][number])
                if not _same(value.to(places[call].device), places[call]):
                    raise BadOutput(f"output {number} of a call has changed after the call: later calls write over it")


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether values are equal after the copy's conversion, NaN to NaN."""
    one = one.to(other.dtype).reshape(other.shape) if one.numel() == other.numel() else one.expand(other.shape)
    equal = one == other
    return bool((equal | ((one != one) & (other != other))).all())
