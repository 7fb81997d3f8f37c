"""The function that a `Launch` or a `LaunchPlan` calls once all its kernels are compiled: `GuardedCall` of
`native/guarded_call.c`."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from triton.runtime.driver import driver

from passbench.launch.allocation import empty_on_current_device, fillers
from passbench.launch.native_launch import native

Layout = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]
"""Size, stride and dtype."""


class Step(NamedTuple):
    """A launch of a bound kernel on tensors by number."""

    kernel: Any
    tensors: tuple[int, ...]


def guarded_call(
    dtypes: Sequence[torch.dtype],
    fresh: Sequence[Layout],
    steps: Sequence[Step],
    device: int,
    otherwise: Callable[..., Any],
    *,
    as_graph: bool = True,
) -> Callable[..., Any]:
    """A function of input tensors that launches `steps` on them and on `fresh` tensors, and returns the fresh ones:
    None, the one, or a tuple. The inputs have the first numbers. `as_graph`: the steps are one CUDA graph, whose nodes
    get the tensors of each call, but where the stream is recorded; else they are launched one by one.

    It does so if the inputs are of these dtypes, on this device, aligned, and the device is the current one, and nobody
    wants fresh memory filled; else it returns what `otherwise` returns for them.
    """
    launches = native().Launches(len(dtypes) + len(fresh), tuple(map(tuple, steps)), as_graph)
    given = tuple(dtypes), tuple(fresh), launches, device, fillers, driver.active.get_current_stream
    return native().GuardedCall(*given, empty_on_current_device, otherwise)
