"""The shared memory as a worker's calls see it: inputs as tensors, places to copy outputs to."""

from typing import Any

import torch

from passbench.ipc import shared_memory
from passbench.ipc.messages import Batch, Block


class CallMemory:
    """What of the parent's memory is open. `shared` is None until `open`."""

    def __init__(self, device: torch.device, shared_fd: int | None) -> None:
        self.device, self._shared_fd = device, shared_fd
        self.shared: shared_memory.SharedMemory | None = None
        self._tensors: shared_memory.TensorCache = {}

    def open(self, handle: tuple) -> None:
        """Map the memory that the parent has made."""
        self.forget()
        self.shared = shared_memory.open_handle(handle, self._shared_fd, self.device)

    def close(self) -> None:
        """Let go of it."""
        self.forget()
        self.synchronize()
        if self.shared is not None:
            self.shared.close()
            self.shared = None

    def forget(self) -> None:
        """Drop the tensors that were made of it."""
        self._tensors.clear()

    def inputs(self, batch: Batch) -> list[tuple[torch.Tensor | int, ...]]:
        """The inputs of each call of a batch."""
        columns = [
            shared_memory.input_tensors(self.shared, x, batch.order, self._tensors)
            if isinstance(x, Block)
            else [x] * batch.calls
            for x in batch.inputs
        ]
        return list(zip(*columns, strict=True)) if columns else [()] * batch.calls

    def copy_out(
        self, outputs: list[list[Any]], batch: Batch, calls: list[int], *, on_device: bool | None = None
    ) -> None:
        """Copy the outputs of these calls to their places. `on_device`: only those that lie on the device, without
        waiting for it, as a CUDA graph can; False: only the others."""
        for number, block in enumerate(batch.outputs):
            if block is None or not calls:
                continue
            places = shared_memory.output_views(self.shared, block)
            values = [torch.as_tensor(leaves[number]) for leaves in outputs]
            pairs = [
                (places[call], value)
                for call, value in zip(calls, values, strict=True)
                if on_device is None or value.is_cuda is on_device
            ]
            if pairs:
                torch._foreach_copy_(*map(list, zip(*pairs, strict=True)))
        if not on_device:
            self.synchronize()

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def seed(self, seed: int) -> None:
        """Seed the generators of random operators."""
        seed_generators(seed, self.device)


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed the generators of random operators, those of the CPU and of a GPU, as `torch.manual_seed` does.

    That also asks kinds of devices that are not here, and keeps a text of the stack for each, which takes 0.1 ms;
    PassBench seeds some hundred times a variant.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        for generator in torch.cuda.default_generators:
            generator.manual_seed(seed)
