"""Reductions by a function of the kernel's own, in pairs as on a GPU."""

from collections.abc import Sequence
from typing import Any

_LANES = 32
"""Threads of a warp, which combine what they have before warps do."""


def reduce_in_pairs() -> None:
    """The interpreter's `tl.reduce` combines one element after another, where a GPU combines halves: lanes that are
    16, 8, 4, 2 and 1 apart, and then warps, of as many elements as threads. A function that is right for equal parts
    alone, such as one of moments that counts nothing, gives wrong numbers in a row. This combines halves.
    """
    import numpy as np
    from triton.runtime import interpreter

    one_by_one = interpreter.ReduceOps.generic_reduce

    def generic_reduce(self: Any, given: Sequence) -> list:
        shape = given[0].handle.data.shape
        whole = [one.handle.data.reshape(-1) for one in given] if self.axis is None else None
        parts = whole or [np.moveaxis(one.handle.data, self.axis, -1) for one in given]
        size = parts[0].shape[-1]
        if size & (size - 1):
            return one_by_one(self, given)
        lanes = min(size, _LANES)
        parts = [part.reshape(*part.shape[:-1], size // lanes, lanes) for part in parts]
        for _ in range(2):  # the lanes of each warp, and then warps
            while (count := parts[0].shape[-1]) > 1:
                halves = [part[..., at : at + count // 2] for at in (0, count // 2) for part in parts]
                blocks = [self.to_tensor(half, one.dtype) for half, one in zip(halves, [*given, *given], strict=True)]
                found = self.combine_fn.fn(*blocks)
                made = found if isinstance(found, tuple | interpreter.tl.core.tuple) else (found,)
                parts = [np.broadcast_to(getattr(m, "handle", m).data, halves[0].shape) for m in made]
            parts = [part[..., 0] for part in parts]
        if self.keep_dims:
            ones = (1,) * len(shape)
            parts = [part.reshape(ones) if self.axis is None else np.expand_dims(part, self.axis) for part in parts]
        numbers = [part if part.shape else part.item() for part in parts]
        return [self.to_tensor(number, one.dtype) for number, one in zip(numbers, given, strict=True)]

    interpreter.ReduceOps.generic_reduce = generic_reduce
