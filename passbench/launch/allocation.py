"""Fresh memory for the outputs of a wrapper, at less than half of what `torch.empty_strided` costs the host."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch._C._dynamo import guards

_current_device = getattr(torch._C, "_cuda_getDevice", None)
fillers: list[bool] = []
"""One for each caller that wants fresh memory filled. If there are any, torch allocates it, and they see that."""
fills_memory = fillers.__len__
empty_on_current_device = guards._empty_strided_cuda
"""`(size, stride, dtype)`, tuples and a dtype: memory of the current GPU, past torch's dispatcher and never filled."""


@contextmanager
def filled() -> Iterator[None]:
    """A caller wants fresh memory filled in this context: `empty_strided` leaves it to torch."""
    fillers.append(True)
    try:
        yield
    finally:
        fillers.pop()


def empty_strided(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype, beside: torch.Tensor) -> torch.Tensor:
    """A tensor that nobody has written to, on the device of `beside`; cheap where `size` and `stride` are tuples."""
    plain = type(size) is tuple and type(stride) is tuple and not fills_memory()
    if plain and beside.is_cuda and beside.get_device() == _current_device():
        return empty_on_current_device(size, stride, dtype)
    return torch.empty_strided(size, stride, dtype=dtype, device=beside.device)
