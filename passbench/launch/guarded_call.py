"""The function that a `Launch` or a `LaunchPlan` calls once all its kernels are compiled, without a loop in its text.

In Python a loop over three tensors costs as much as all that is done with them.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from triton.runtime.driver import driver

from passbench.launch.allocation import empty_on_current_device, fills_memory
from passbench.launch.bound_kernel import ALIGNMENT, BoundKernel

Layout = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]
"""Size, stride and dtype."""


class Step(NamedTuple):
    """A launch of a kernel on tensors by number."""

    kernel: BoundKernel
    tensors: tuple[int, ...]


def guarded_call(
    dtypes: Sequence[torch.dtype],
    fresh: Sequence[Layout],
    steps: Sequence[Step],
    device: int,
    otherwise: Callable[..., Any],
) -> Callable[..., Any]:
    """A function of input tensors that launches `steps` on them and on `fresh` tensors, and returns the fresh ones:
    None, the one, or a tuple. The inputs have the first numbers.

    It does so if the inputs are of these dtypes, on this device, aligned, and the device is the current one; else it
    returns what `otherwise` returns for them.
    """
    shape = tuple([(step.tensors, len(step.kernel.rest)) for step in steps])
    make = _maker(len(dtypes), len(fresh), shape)
    kernels = [(*step.kernel.call, *step.kernel.rest) for step in steps]
    stream = driver.active.get_current_stream
    return make(dtypes, fresh, kernels, device, stream, empty_on_current_device, fills_memory, otherwise)


@functools.cache
def _maker(inputs: int, fresh: int, steps: tuple[tuple[tuple[int, ...], int], ...]) -> Callable[..., Callable]:
    """A function that makes such functions: for so many tensors, and steps of these tensors and so many other
    arguments. Its text depends on these numbers alone."""
    given = ", ".join(f"tensor_{n}" for n in range(inputs))
    otherwise = f"return otherwise({given})"
    lines = ["def make(dtypes, fresh, kernels, device, stream, empty, fills_memory, otherwise):"]
    lines += [f"    dtype_{n} = dtypes[{n}]" for n in range(inputs)]
    lines += [f"    size_{inputs + n}, stride_{inputs + n}, dtype_{inputs + n} = fresh[{n}]" for n in range(fresh)]
    for n, (_, others) in enumerate(steps):
        lines.append(f"    launch_{n}, {_call(n)}{_others(n, others)}= kernels[{n}]")
    lines.append(f"    def run({given}):")
    lines += [f"        address_{n} = tensor_{n}.data_ptr()" for n in range(inputs)]
    checks = [f"tensor_{n}.dtype is dtype_{n} and tensor_{n}.get_device() == device" for n in range(inputs)]
    together = " | ".join(f"address_{n}" for n in range(inputs)) or "0"
    checks += [f"not ({together}) % {ALIGNMENT}", *(["not fills_memory()"] if fresh else [])]
    lines += [f"        if not ({' and '.join(checks)}):", f"            {otherwise}"]
    made = inputs
    for n, (tensors, others) in enumerate(steps):
        first, last = n == 0 and fresh > 0, n + 1 == len(steps)
        while made <= max(*tensors, inputs if first else 0, inputs + fresh - 1 if last else 0):
            lines.append(f"        tensor_{made} = empty(size_{made}, stride_{made}, dtype_{made})")
            lines.append(f"        address_{made} = tensor_{made}.data_ptr()")
            if made == inputs:  # it is on the current device; nothing is launched yet
                lines += [f"        if tensor_{made}.get_device() != device:", f"            {otherwise}"]
            made += 1
        addresses = "".join(f"address_{tensor}, " for tensor in tensors)
        lines.append(f"        launch_{n}({_call(n)}({addresses}{_others(n, others)}), stream(device))")
    returned = ", ".join(f"tensor_{inputs + n}" for n in range(fresh))
    lines += [f"        return {returned or None}", "    return run"]
    namespace: dict[str, Any] = {}
    exec("\n".join(lines), namespace)
    return namespace["make"]


def _call(step: int) -> str:
    return "".join(f"{name}_{step}, " for name in ("function", "x", "y", "z", "warps", "shared", "kinds"))


def _others(step: int, count: int) -> str:
    return "".join(f"other_{step}_{n}, " for n in range(count))
