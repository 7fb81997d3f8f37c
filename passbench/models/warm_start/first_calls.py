"""A model's convolutions: noted when it is tuned, and called once on stand-ins while a later start captures it.

cuDNN plans a convolution when a thread calls it first, and compiles a kernel for some. torch keeps these plans for each
thread alone, so the CUDA graph must be captured by the thread that made the calls (`captured_in` of `replayed.py`).
"""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from passbench.library.model_choices import ModelChoices, kinds_of
from passbench.models.warm_start.beside_capture import gpu_thread
from storage.records import dtype_of

MOST_BYTES = 4 << 30
"""A convolution whose operands and result take more is left to the capture: anybody may have written the library."""


class FirstCalls:
    """What a library knows of a model's convolutions, by the model's `call_key`.

    `thread` is the one that calls them now; None where the library knows none. A file that holds something else is
    passed over. What a call raises in the thread is told to nobody: if the model has that convolution, the capture
    meets it again, and raises it there.
    """

    def __init__(self, library: str, key: str, device: torch.device) -> None:
        self._kept, self._key = ModelChoices(library, "first_calls"), key
        known = self._kept.get(key)
        convolutions = known.get("convolutions") if isinstance(known, dict) else None
        self.thread: ThreadPoolExecutor | None = None
        if convolutions:
            self.thread = gpu_thread(device)
            self.thread.submit(call_on_stand_ins, convolutions, device)

    def note(self, call: Callable[..., object], moving: Sequence[torch.Tensor]) -> None:
        """Keep the convolutions of `call(*moving)`, if it has any."""
        if found := convolutions_of(call, moving):
            self._kept.put(self._key, {"convolutions": found})


def convolutions_of(call: Callable[..., object], moving: Sequence[torch.Tensor]) -> list[list]:
    """The different convolutions of `call(*moving)` as plain data: input, weight and bias without values, then the
    other arguments of `torch.convolution`."""
    with torch.no_grad(), _NotingConvolutions() as noting:
        call(*moving)
    return [json.loads(text) for text in dict.fromkeys(noting.found)]


def call_on_stand_ins(convolutions: Sequence[Sequence], device: torch.device) -> None:
    """Call each of these convolutions of at most `MOST_BYTES` once on tensors of its kinds that hold no values. Raises
    what torch raises for kinds that are none, or do not fit."""
    with torch.no_grad():
        for tensors, rest in convolutions:
            if _bytes(tensors, rest) <= MOST_BYTES:
                torch.convolution(*_stand_ins(tensors, device), *rest)


class _NotingConvolutions(TorchDispatchMode):
    """Notes convolutions, as text, and lets everything run."""

    def __init__(self) -> None:
        super().__init__()
        self.supports_higher_order_operators = True
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func is torch.ops.aten.convolution.default:
            tensors, rest = args[:3], args[3:]
            kinds = [None if x is None else kinds_of([x])[0] for x in tensors]
            self.found.append(json.dumps([kinds, rest]))
        return func(*args, **(kwargs or {}))


def _stand_ins(kinds: Sequence, device: torch.device) -> list[torch.Tensor | None]:
    return [None if kind is None else _stand_in(*kind, device) for kind in kinds]


def _stand_in(dtype: str, shape: list[int], stride: list[int], device: torch.device) -> torch.Tensor:
    return torch.empty_strided(shape, stride, dtype=dtype_of(dtype.removeprefix("torch.")), device=device)


def _bytes(kinds: Sequence, rest: Sequence) -> int:
    """What a convolution's operands and its result take."""
    operands = _stand_ins(kinds, torch.device("meta"))
    tensors = [x for x in (*operands, torch.convolution(*operands, *rest)) if x is not None]
    return sum(x.untyped_storage().nbytes() for x in tensors)
