"""Sealed calls of a timed exchange: nobody can compute them before their turn, or after it.

The inputs of a sealed call are copied in when the call before it has ended. Its outputs are copied out as soon as it
ends. Between the two copies no code of a pass runs but that call. So a pass that computes the outputs of several calls
at once, earlier or later, gives wrong outputs for sealed calls. Which calls are sealed is random in every exchange.
Both copies are outside the time of a call, in eager's worker too.
"""

from collections.abc import Sequence
from typing import Any

import torch

from passbench.child.outputs import BadOutput, differing
from passbench.ipc.messages import Batch, Block
from passbench.ipc.shared_memory import SharedMemory, output_views, place_bytes


class SealedCalls:
    """Delivers the inputs of an exchange's sealed calls, and takes their outputs. `calls` are their numbers.

    All tensors are made ready beforehand: what is done between two calls costs a few microseconds.
    """

    def __init__(self, shared: SharedMemory, batch: Batch) -> None:
        self.calls = frozenset(batch.sealed)
        blocks = [block for block in batch.inputs if isinstance(block, Block)]
        self._deliveries = {
            call: (
                [place_bytes(shared, block, batch.order[call]) for block in blocks],
                [place_bytes(shared, block, place) for block in blocks],
            )
            for call, place in zip(batch.sealed, batch.late, strict=False)
            if blocks
        }
        slots = [None if block is None else output_views(shared, block) for block in batch.outputs if batch.sealed]
        self._slots = {call: [places and places[call] for places in slots] for call in batch.sealed}

    def deliver(self, call: int) -> None:
        """Put the call's inputs in their place; nothing where they are there already."""
        if call in self._deliveries:
            torch._foreach_copy_(*self._deliveries[call])

    def take(self, call: int, outputs: Sequence[Any]) -> None:
        """Copy out what a call has returned: values that `outputs.check` has let through."""
        pairs = [
            (slot, torch.as_tensor(x)) for slot, x in zip(self._slots[call], outputs, strict=True) if slot is not None
        ]
        if pairs:
            torch._foreach_copy_(*map(list, zip(*pairs, strict=True)))

    def check_unchanged(self, outputs: Sequence[Sequence[Any]]) -> None:
        """What sealed calls have returned is still what was taken of it; raises BadOutput."""
        taken = [
            (number, slot, torch.as_tensor(outputs[call][number]).resolve_conj().resolve_neg())
            for call, slots in self._slots.items()
            for number, slot in enumerate(slots)
            if slot is not None
        ]
        changed = differing([(value.to(slot.device, slot.dtype).expand(slot.shape), slot) for _, slot, value in taken])
        if any(changed):
            number = taken[changed.index(True)][0]
            raise BadOutput(f"output {number} of a call has changed after the call: later calls write over it")
