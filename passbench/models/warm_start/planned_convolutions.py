"""Convolutions that several threads plan side by side; each is called by the thread that planned it from then on.

cuDNN plans a convolution when a thread calls it first, and torch keeps the plan for that thread alone. A plan takes
2 ms, or a tenth of a second where cuDNN compiles a kernel, as for float32 depthwise convolutions whose channels lie
last.
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from passbench.library.model_choices import kinds_of
from passbench.models.warm_start.beside_capture import gpu_thread, helping_thread
from storage.records import dtype_of

MOST_BYTES = 4 << 30
"""A convolution whose operands and result take more is left to the capture: anybody may have written the library."""
SLOW_SECONDS = 0.03
"""A first call that takes longer has compiled a kernel, or loaded a library."""
LIBRARIES = 2
"""So many slow calls may have loaded libraries. With the next one other threads begin to help."""
MOST_HELPERS = 3
CORES_EACH = 4
"""There is a helper for so many cores: the process imports meanwhile, and may not be alone."""


class PlannedConvolutions:
    """Convolutions, as `told` gives them, that `thread` plans one after another; where that takes long, others help.

    A thread whose call raises plans no further, and tells nobody: if the model has that convolution, the capture meets
    it again, and raises it there.
    """

    def __init__(self, convolutions: list[Any], device: torch.device) -> None:
        self.thread = gpu_thread(device)
        self._device = device
        self._left = iter(convolutions)
        self._helpers: dict[str, ThreadPoolExecutor] = {}
        self._helping: list[Future] = []
        self.thread.submit(self._plan)

    def calling(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function for `thread` to call: helpers call what they have planned."""

        def call(*moving: torch.Tensor) -> Any:
            wait(self._helping)
            if not self._helpers:
                return function(*moving)
            with _ByHelpers(self._helpers):
                return function(*moving)

        return call

    def _plan(self) -> None:
        slow = 0
        for convolution in self._left:
            begin = time.perf_counter()
            call_on_stand_ins([convolution], self._device)
            slow += time.perf_counter() - begin > SLOW_SECONDS
            if slow > LIBRARIES and not self._helping:
                helpers = [helping_thread(self._device, number) for number in range(_helper_count())]
                self._helping = [helper.submit(self._help, helper) for helper in helpers]

    def _help(self, helper: ThreadPoolExecutor) -> None:
        for convolution in self._left:
            call_on_stand_ins([convolution], self._device)
            self._helpers[json.dumps(convolution)] = helper


def _helper_count() -> int:
    return min(MOST_HELPERS, len(os.sched_getaffinity(0)) // CORES_EACH)


def told(arguments: Sequence[Any]) -> str:
    """The arguments of `torch.convolution` as text: input, weight and bias without values, then the others."""
    kinds = [None if x is None else kinds_of([x])[0] for x in arguments[:3]]
    return json.dumps([kinds, arguments[3:]])


class _ByHelpers(TorchDispatchMode):
    """Has helpers call the convolutions that they planned, on this thread's stream, and waits for each."""

    def __init__(self, helpers: dict[str, ThreadPoolExecutor]) -> None:
        super().__init__()
        self.supports_higher_order_operators = True
        self._helpers = helpers

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        helper = self._helpers.get(told(args)) if func is torch.ops.aten.convolution.default else None
        if helper is None:
            return func(*args, **(kwargs or {}))
        stream = torch.cuda.current_stream(args[0].device) if args[0].is_cuda else None
        return helper.submit(_called, stream, args).result()


def _called(stream: torch.cuda.Stream | None, arguments: tuple) -> torch.Tensor:
    with torch.no_grad(), torch.cuda.stream(stream):
        return torch.convolution(*arguments)


def call_on_stand_ins(convolutions: Sequence[Sequence], device: torch.device) -> None:
    """Call each of these convolutions of at most `MOST_BYTES` once on tensors of its kinds that hold no values. Raises
    what torch raises for kinds that are none, or do not fit."""
    with torch.no_grad():
        for tensors, rest in convolutions:
            if _bytes(tensors, rest) <= MOST_BYTES:
                torch.convolution(*_stand_ins(tensors, device), *rest)


def _stand_ins(kinds: Sequence, device: torch.device) -> list[torch.Tensor | None]:
    return [None if kind is None else _stand_in(*kind, device) for kind in kinds]


def _stand_in(dtype: str, shape: list[int], stride: list[int], device: torch.device) -> torch.Tensor:
    return torch.empty_strided(shape, stride, dtype=dtype_of(dtype.removeprefix("torch.")), device=device)


def _bytes(kinds: Sequence, rest: Sequence) -> int:
    """What a convolution's operands and its result take."""
    operands = _stand_ins(kinds, torch.device("meta"))
    tensors = [x for x in (*operands, torch.convolution(*operands, *rest)) if x is not None]
    return sum(x.untyped_storage().nbytes() for x in tensors)
