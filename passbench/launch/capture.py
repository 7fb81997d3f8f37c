"""A function of a pass as a CUDA graph: many launches for the price of one. Trusted code that a pass may use.

The first call with arguments of some layout records the function's launches on buffers of this module's own
(`passbench.launch.recording`). Later calls replay the launches, the first of which copies the inputs into those
buffers, and the last the results into fresh tensors. So a call's outputs are computed within the call, from that call's
inputs, and are its caller's.
"""

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType
from typing import Any

import torch
from torch._C._dynamo.guards import TensorGuards

from passbench.launch.allocation import fills_memory
from passbench.launch.branches import ARGUMENTS, branching
from passbench.launch.copies import can_copy
from passbench.launch.graph_copies import overlaps_itself, stepping
from passbench.launch.recording import Recording
from passbench.launch.replayed_call import Condition, replayed_call

MOST_RECORDINGS = 16
"""So many recordings are kept, the last used. Each holds copies of its inputs, and its results and intermediates."""
MOST_BYTES = 256 << 20
"""Inputs of more bytes are not copied: launches are cheaper."""
_is_capturing = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None)
_current_device = getattr(torch._C, "_cuda_getDevice", None)
_is_deterministic = torch._C._get_deterministic_algorithms
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)


class GraphCapture:
    """`captured(function, *arguments)` returns what `function(*arguments)` returns.

    `function` is a plain function that computes new tensors from its arguments, tensors and numbers, and writes to none
    of them. It is run as it is where a recording cannot be made or would not pay: on a CPU, inside of another CUDA
    graph's capture, where gradients are needed or random numbers drawn, on inputs that overlap themselves or are large,
    and while torch is to use deterministic algorithms. Results are a tensor, or a tuple or list of tensors, numbers and
    None.

    Raises TypeError on anything but a function, on one with variables of another around it, on containers as arguments
    and on other results, and what CUDA raises where the function waits for the device.
    """

    def __init__(self) -> None:
        self._recordings: OrderedDict[tuple, Recording | None] = OrderedDict()
        self._latest: dict[FunctionType, _Latest] = {}
        self._lock = threading.RLock()

    def __call__(self, function: FunctionType, *arguments: Any) -> Any:
        latest = self._latest.get(function)
        return self._looked_up(function, *arguments) if latest is None else latest.call(*arguments)

    def _looked_up(self, function: FunctionType, *arguments: Any) -> Any:
        """The same for arguments that are not like the last ones."""
        if type(function) is not FunctionType or function.__closure__ is not None:
            raise TypeError("captured takes a function that needs nothing but its arguments")
        if not all(isinstance(a, ARGUMENTS) for a in arguments):
            raise TypeError("captured takes tensors and numbers one by one, no containers")
        if not torch.cuda.is_initialized():
            return function(*arguments)
        if _is_capturing():
            with branching(arguments):
                return function(*arguments)
        device = _current_device()
        stream = _raw_stream(device)
        with self._lock:
            recording = self._recording(function, arguments, device, stream)
        if recording is None or (torch.is_grad_enabled() and _needs_gradients(arguments)):
            return function(*arguments)
        return recording.replay(arguments, stream)

    def _recording(
        self, function: FunctionType, arguments: Sequence[Any], device: int, stream: int
    ) -> Recording | None:
        """The recording for arguments of this layout, made now if there is none; None if there is to be none."""
        if _is_deterministic():
            return None  # such algorithms are others, with other bits
        key = (function, device, stream, *map(_layout, arguments))
        if key not in self._recordings:
            if fills_memory():
                return None  # to fill memory is no part of the function
            recording = Recording(function, arguments) if _pays(arguments, device) else None
            self._recordings[key] = None if recording is None or recording.draws else recording
            if len(self._recordings) > MOST_RECORDINGS:
                self._forget_one(key)
        self._recordings.move_to_end(key)
        recording = self._recordings[key]
        if recording is None or _needs_gradients(arguments):
            self._latest.pop(function, None)
        elif function not in self._latest or not self._latest[function].fits(arguments):
            otherwise = functools.partial(self._looked_up, function)
            self._latest[function] = _Latest(key, recording, arguments, device, stream, otherwise)
        return recording

    def _forget_one(self, new: tuple) -> None:
        """Give up a recording other than the `new` one."""
        key = to_forget(self._recordings, [latest.key for latest in self._latest.values()], new)
        torch.cuda.synchronize()
        del self._recordings[key]
        if key[0] in self._latest and self._latest[key[0]].key == key:
            del self._latest[key[0]]

    def forget(self) -> None:
        """Give up all recordings, and the memory that they hold."""
        with self._lock:
            if self._recordings:
                torch.cuda.synchronize()
            self._recordings.clear()
            self._latest.clear()


def to_forget(recordings: Iterable[tuple], latest: Sequence[tuple], new: tuple) -> tuple:
    """Of the keys of recordings, the last used at the end, the one to give up: one that no function used last, if there
    is any, and never the `new` one."""
    return next(key for key in (*(k for k in recordings if k not in latest), *latest) if key != new)


class _Latest:
    """The recording that a function used last, and a quick look whether it fits a call's arguments too: `call` replays
    it for those that it fits, and returns what `otherwise` returns for others."""

    def __init__(
        self,
        key: tuple,
        recording: Recording,
        arguments: Sequence[Any],
        device: int,
        stream: int,
        otherwise: Callable[..., Any],
    ) -> None:
        self.key, self._recording, self._stream, self._otherwise = key, recording, stream, otherwise
        self._count = len(arguments)
        self._tensors = [n for n, a in enumerate(arguments) if isinstance(a, torch.Tensor)]
        self._others = [n for n, a in enumerate(arguments) if not isinstance(a, torch.Tensor)]
        self._values = [_layout(arguments[n]) for n in self._others]
        tensors = [arguments[n] for n in self._tensors]
        sizes, strides = [list(a.shape) for a in tensors], [list(a.stride()) for a in tensors]
        # In C: type, dtype, device, sizes, strides, whether gradients are needed, lazy conjugation and negation
        guards = TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
        self._same_tensors: Callable[..., bool] = guards.check
        self._conditions = (
            Condition(_current_device, (), device),
            Condition(_raw_stream, (device,), stream),
            Condition(_is_capturing, (), False),
            Condition(_is_deterministic, (), False),
        )
        replay = recording.in_c()
        self.call: Callable[..., Any] = self._checked
        if replay is not None:
            self.call = replayed_call(replay, self._same_tensors, self._conditions, stream, otherwise)

    def _checked(self, *arguments: Any) -> Any:
        return self._recording.replay(arguments, self._stream) if self.fits(arguments) else self._otherwise(*arguments)

    def fits(self, arguments: Sequence[Any]) -> bool:
        """Whether the recording is of arguments like these, and of the current stream, which records nothing."""
        if len(arguments) != self._count:
            return False
        tensors = arguments
        if self._others:
            if [_layout(arguments[n]) for n in self._others] != self._values:
                return False
            tensors = [arguments[n] for n in self._tensors]
        return self._same_tensors(*tensors) and all(f(*given) == says for f, given, says in self._conditions)


captured = GraphCapture()
"""The one that passes import."""


def _layout(argument: Any) -> tuple:
    """What two arguments have in common for which a function launches the same."""
    if isinstance(argument, float):
        return type(argument), argument.hex()  # -0.0 equals 0.0, and is another number to a function
    if not isinstance(argument, torch.Tensor):
        return type(argument), argument
    lazy = argument.is_conj(), argument.is_neg()
    return argument.dtype, argument.get_device(), argument.shape, argument.stride(), lazy


def _needs_gradients(arguments: Sequence[Any]) -> bool:
    return any(a.requires_grad for a in arguments if isinstance(a, torch.Tensor))


def _pays(arguments: Sequence[Any], device: int) -> bool:
    tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
    return (
        bool(tensors)
        and can_copy()
        and all(type(a) is torch.Tensor and a.is_cuda and a.get_device() == device for a in tensors)
        and not any(a.is_conj() or a.is_neg() or overlaps_itself(stepping(a)) for a in tensors)
        and sum(a.numel() * a.element_size() for a in tensors) <= MOST_BYTES
    )
