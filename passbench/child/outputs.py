"""What a call returned, as the child sees it: leaves, their description, and whether they are of eager's kind."""

import gc
import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from passbench.ipc.messages import DTYPES, MAX_DIMS, OutputKind, OutputMeta
from passbench.ipc.shared_memory import extent
from storage.records import contiguous_stride

_SCALARS = {
    int: (OutputKind.INT, torch.int64),
    float: (OutputKind.FLOAT, torch.float64),
    bool: (OutputKind.BOOL, torch.bool),
}


class BadOutput(Exception):
    """An output that is not what eager's is."""


def flatten(value: Any) -> list[Any]:
    """Tensors and numbers of a module's result, depth first; dicts by their order."""
    if isinstance(value, tuple | list):
        return [leaf for item in value for leaf in flatten(item)]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in flatten(item)]
    return [value]


def places(value: Any, way: bytes = b"") -> list[int]:
    """A number for each leaf of `flatten`, in order: of the positions and keys that lead to it. A list and a tuple are
    alike. A pass chooses its keys, so the number is a digest: no key can be found that gives another place's.
    """
    if isinstance(value, dict):
        parts = ((f"key {key}", item) for key, item in value.items())
    elif isinstance(value, tuple | list):
        parts = ((str(number), item) for number, item in enumerate(value))
    else:
        return [int.from_bytes(way)]
    return [place for step, item in parts for place in places(item, _further(way, step))]


def _further(way: bytes, step: str) -> bytes:
    """What stands for a way and one more step."""
    return blake2b(way + step.encode(), digest_size=8).digest()


def describe_all(result: Any, inputs: Sequence, device: torch.device) -> tuple[OutputMeta, ...]:
    """What the outputs of a call on `inputs` are, for a worker of `device`. Raises BadOutput if one cannot be
    compared."""
    metas: list[OutputMeta] = []
    outputs = flatten(result)
    for number, (value, place) in enumerate(zip(outputs, places(result), strict=True)):
        meta = _describe(value, inputs, number)._replace(place=place)
        if meta.kind is OutputKind.TENSOR:
            storage = value.untyped_storage().data_ptr()
            first = next((n for n, other in enumerate(outputs[:number]) if _is_in(other, storage)), -1)
            meta = meta._replace(shares=first, elsewhere=value.device.type != device.type)
        metas.append(meta)
    return tuple(metas)


def _is_in(value: Any, storage: int) -> bool:
    return isinstance(value, torch.Tensor) and value.numel() > 0 and value.untyped_storage().data_ptr() == storage


def _describe(value: Any, inputs: Sequence, number: int) -> OutputMeta:
    if value is None:
        return OutputMeta(OutputKind.NONE, torch.bool, (), (), -1)
    if type(value) in _SCALARS:
        kind, dtype = _SCALARS[type(value)]
        return OutputMeta(kind, dtype, (), (), -1)
    if type(value) is not torch.Tensor or value.layout is not torch.strided or value.dtype not in DTYPES:
        raise BadOutput(f"output {number} is a {type(value).__name__} that PassBench cannot compare")
    if value.dim() > MAX_DIMS:
        raise BadOutput(f"output {number} has {value.dim()} dimensions; PassBench handles up to {MAX_DIMS}")
    return OutputMeta(OutputKind.TENSOR, value.dtype, tuple(value.shape), value.stride(), _alias(value, inputs))


def _alias(value: torch.Tensor, inputs: Sequence) -> int:
    """The number of the input whose storage `value` shares, -1 for none; each input has a storage of its own."""
    if value.numel() == 0:
        return -1
    start = value.untyped_storage().data_ptr()
    for number, x in enumerate(inputs):
        if isinstance(x, torch.Tensor) and x.numel() and x.untyped_storage().data_ptr() == start:
            return number
    return -1


def check(outputs: Sequence, inputs: Sequence, expected: tuple[OutputMeta, ...], *, strict: bool) -> None:
    """Raises BadOutput unless number, types, dtypes and shapes are eager's. Not `strict`: the number alone."""
    if len(outputs) != len(expected):
        raise BadOutput(f"{len(outputs)} outputs, where eager has {len(expected)}")
    if strict:
        for number, (output, meta) in enumerate(zip(outputs, expected, strict=True)):
            _check_one(output, inputs, number, meta)


def check_places(result: Any, expected: tuple[OutputMeta, ...]) -> None:
    """Raises BadOutput unless the outputs of a pass lie in its result as eager's do. `check` must have let them
    through. Baselines are not asked: they may return a tuple of one."""
    for number, (place, meta) in enumerate(zip(places(result), expected, strict=True)):
        if place != meta.place:
            raise BadOutput(f"output {number} is not where eager has it; return a tensor where the pattern returns one")


_OF_TENSORS = dict(vars(torch.Tensor))
"""Attributes of the class before any code of a pass runs."""


def check_plain(calls: Sequence[tuple[Sequence, Sequence]]) -> None:
    """Raises BadOutput if an output or input has attributes that were set on it: they would hide torch's own, such as
    `stride`, from whoever looks at it. So would those of the class. `calls` are pairs of outputs and inputs."""
    found = vars(torch.Tensor)
    hidden = [name for name in found.keys() - _OF_TENSORS if hasattr(torch._C.TensorBase, name)]
    if hidden or any(found.get(name) is not value for name, value in _OF_TENSORS.items()):
        raise BadOutput("torch.Tensor has been given an attribute, which would hide torch's own")
    for tensors in calls:
        for x in (x for values in tensors for x in values if isinstance(x, torch.Tensor)):
            if own := vars(x):
                raise BadOutput(f"a tensor has been given an attribute {next(iter(own))}, which would hide torch's own")


def check_memory(outputs: Sequence, expected: tuple[OutputMeta, ...], device: torch.device) -> None:
    """Raises BadOutput unless the outputs of a pass lie in memory as eager's do. `check` must have let them through.

    Each is on eager's device, and has eager's strides or is contiguous. No two share memory unless eager's two do. Two
    that lie side by side in one allocation share none. Baselines are not asked: they may choose strides.
    """
    spans: list[tuple[int, int, int]] = []
    for number, (output, meta) in enumerate(zip(outputs, expected, strict=True)):
        if meta.kind is not OutputKind.TENSOR:
            continue
        if (output.device.type != device.type) != meta.elsewhere:
            raise BadOutput(f"output {number} is on {output.device.type}, where eager's is not")
        if output.is_conj() or output.is_neg():
            raise BadOutput(f"output {number} is conjugated or negated when it is read; write its values")
        if output.numel() == 0:
            continue
        if not _same_steps(output, meta):
            found, wanted = list(output.stride()), list(meta.stride)
            raise BadOutput(f"output {number} has strides {found}; return eager's, {wanted}, or a contiguous tensor")
        start = output.data_ptr()
        end = start + extent(tuple(output.shape), output.stride()) * output.element_size()
        group = number if meta.shares < 0 else meta.shares
        for other, other_start, other_end in spans:
            if start < other_end and other_start < end and not _together(other, group, number, expected):
                raise BadOutput(f"output {number} shares memory with output {other}, which eager's does not")
        spans.append((number, start, end))


def _together(other: int, group: int, number: int, expected: tuple[OutputMeta, ...]) -> bool:
    """Whether eager's two outputs share an allocation, their own or an input's."""
    one, two = expected[other], expected[number]
    return (other if one.shares < 0 else one.shares) == group or (one.aliases == two.aliases >= 0)


def _same_steps(output: torch.Tensor, meta: OutputMeta) -> bool:
    """Whether strides are eager's or those of a contiguous tensor, in dimensions that have a step."""
    if output.stride() == meta.stride:
        return True
    steps = [step for size, step in zip(output.shape, output.stride(), strict=True) if size > 1]
    allowed = (meta.stride, contiguous_stride(meta.shape))
    return any(steps == [step for size, step in zip(meta.shape, one, strict=True) if size > 1] for one in allowed)


class KeptOutputs:
    """Outputs of earlier calls, held as a caller would hold them.

    Memory that was returned is the caller's: no later call may return it or write to it.
    """

    _MOST_CALLS = 8
    _MOST_BYTES = 128 << 20  # of one call; larger outputs are not held

    def __init__(self) -> None:
        self._held: list[tuple[list[torch.Tensor], list[torch.Tensor]]] = []
        self._random = random.SystemRandom()

    def keep_one(self, calls: Sequence[tuple[Sequence, Sequence]]) -> None:
        """Hold the outputs of one of `calls`, pairs of outputs and inputs. Chance decides which, and which is let go.

        Outputs that are views of inputs are not held.
        """
        outputs, inputs = self._random.choice(calls)
        tensors = [x for x in _tensors(outputs) if _alias(x, inputs) < 0]
        if not tensors or sum(x.numel() * x.element_size() for x in tensors) > self._MOST_BYTES:
            return
        if len(self._held) == self._MOST_CALLS:
            self._held.pop(self._random.randrange(self._MOST_CALLS))
        self._held.append((tensors, [x.clone() for x in tensors]))

    def forget(self) -> None:
        """Let go of everything."""
        self._held = []

    def check(self, calls: Sequence[tuple[Sequence, Sequence]]) -> None:
        """Raises BadOutput if two calls have returned the same allocation, or a held output has changed.

        `calls` are pairs of outputs and inputs. They are compared with each other and with the held ones.
        """
        owners = {x.untyped_storage().data_ptr(): "an earlier" for held, _ in self._held for x in held}
        for number, (outputs, inputs) in enumerate(calls):
            own: dict[int, str] = {}
            for x in _tensors(outputs):
                storage = x.untyped_storage().data_ptr()
                if storage in owners and _alias(x, inputs) < 0:
                    raise BadOutput(
                        f"call {number} returns memory that {owners[storage]} call has returned; allocate the outputs "
                        "of every call in that call"
                    )
                own[storage] = "another"
            owners |= own
        if any(differing([pair for held, copies in self._held for pair in zip(held, copies, strict=True)])):
            raise BadOutput("a later call has written over the output of an earlier one")


class MemoryBefore:
    """Memory that tensors of this process have when this is made: no output of a later call may lie in it.

    What tensors share, a storage, is told apart from a later one at the same address. Python lists all tensors that a
    pass can keep; those that were there before the process had begun are not listed, which keeps the list short.
    """

    def __init__(self) -> None:
        tensors = [x for x in gc.get_objects() if issubclass(type(x), torch.Tensor)]
        plain = (x for x in tensors if x.layout is torch.strided and x.device.type in ("cpu", "cuda"))
        self._storages = [StorageWeakRef(x.untyped_storage()) for x in plain]

    def check(self, calls: Sequence[tuple[Sequence, Sequence]]) -> None:
        """Raises BadOutput if an output of `calls`, pairs of outputs and inputs, lies in this memory and in no
        input's."""
        there = {storage.cdata for storage in self._storages if not storage.expired()}
        for outputs, inputs in calls:
            if any(x.untyped_storage()._cdata in there and _alias(x, inputs) < 0 for x in _tensors(outputs)):
                raise BadOutput(_ALLOCATED_BEFORE)


def check_allocated(calls: Sequence[tuple[Sequence, Sequence]], grown: int) -> None:
    """Raises BadOutput unless the outputs of `calls` were allocated while the calls ran: what no tensor of Python had
    before shows here, too.

    `calls` are pairs of outputs and inputs. `grown`: the bytes that torch has given out since before the first call.
    """
    storages = {
        x.untyped_storage().data_ptr(): x.untyped_storage().nbytes()
        for outputs, inputs in calls
        for x in _tensors(outputs)
        if x.device.type == "cuda" and _alias(x, inputs) < 0
    }
    if grown < _ALLOCATED_AGAIN * sum(storages.values()):
        raise BadOutput(_ALLOCATED_BEFORE)


def check_filled(calls: Sequence[tuple[Sequence, Sequence]], held: Sequence[range]) -> None:
    """Raises BadOutput if most calls have an output in memory that was let go while they ran: nobody has filled that,
    and zeros may have been prepared there.

    `calls` are pairs of outputs and inputs. `held`: the addresses of memory that somebody had before the first call. A
    call may replace what it has kept, and a later one find that memory: few calls are spared.
    """
    blocks = sorted(held, key=lambda block: block.start)
    starts = [block.start for block in blocks]

    def was_held(x: torch.Tensor) -> bool:
        at = bisect_right(starts, x.data_ptr()) - 1
        return at >= 0 and x.data_ptr() in blocks[at]

    found = sum(any(was_held(x) and _alias(x, inputs) < 0 for x in _tensors(outputs)) for outputs, inputs in calls)
    if found > max(_MAY_FIND, len(calls) / 2):
        raise BadOutput("outputs lie in memory that was let go while their calls ran; write all of each output")


_MAY_FIND = 4
"""Calls of an exchange that may have an output in such memory, however few calls there are."""
_ALLOCATED_BEFORE = "outputs lie in memory that was allocated before their calls; allocate them in every call"


def check_pinned() -> None:
    """Raises BadOutput if this process holds much pinned memory of the host, which its supervisor does not see."""
    pinned = torch.cuda.memory.host_memory_stats_as_nested_dict().get("allocated_bytes", {}).get("current", 0)
    if pinned > _MOST_PINNED:
        raise BadOutput(f"holds {pinned / 2**30:.1f} GiB of pinned memory; {_MOST_PINNED >> 30} are allowed")


def check_calls(
    calls: Sequence[tuple[Sequence, Sequence]],
    expected: tuple[OutputMeta, ...],
    device: torch.device,
    kept: KeptOutputs,
) -> None:
    """Raises BadOutput unless the outputs of a pass lie in memory as eager's do, and in no memory that another call has
    returned. `calls` are pairs of outputs and inputs; `kept` holds those of one."""
    check_plain(calls)
    for outputs, _ in calls:
        check_memory(outputs, expected, device)
    if device.type == "cuda":
        check_pinned()
    kept.check(calls)
    kept.keep_one(calls)


_MOST_PINNED = 1 << 30
_ALLOCATED_AGAIN = 0.9  # a call may also let go of memory that it had kept


def _tensors(outputs: Sequence) -> Iterator[torch.Tensor]:
    return (x for x in outputs if isinstance(x, torch.Tensor) and x.numel())


_AS_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def differing(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> list[bool]:
    """Whether the two tensors of a pair, of one dtype, shape and device, differ in a bit: NaN equals itself.

    The host waits for the device once, not once a pair.
    """
    found = [(_bits(one) != _bits(other)).any() for one, other in pairs]
    return torch.stack([x.to(found[0].device) for x in found]).tolist() if found else []


def _bits(values: torch.Tensor) -> torch.Tensor:
    if values.element_size() not in _AS_INTEGERS:  # complex128
        values = torch.view_as_real(values)
    return values.view(_AS_INTEGERS[values.element_size()])


def _check_one(output: Any, inputs: Sequence, number: int, meta: OutputMeta) -> None:
    if meta.kind is not OutputKind.TENSOR:
        kind = OutputKind.NONE if output is None else _SCALARS.get(type(output), (None, None))[0]
        if kind is not meta.kind:
            raise BadOutput(f"output {number} is a {type(output).__name__}, where eager has a {meta.kind.name.lower()}")
        return
    if type(output) is not torch.Tensor:
        raise BadOutput(f"output {number} is a {type(output).__name__}, not a torch.Tensor")
    found = (output.dtype, tuple(output.shape))
    if found != (meta.dtype, meta.shape):
        raise BadOutput(
            f"output {number} is {found[0]} {list(found[1])}, where eager has {meta.dtype} {list(meta.shape)}"
        )
    shared = _alias(output, inputs)
    if shared not in (-1, meta.aliases):
        raise BadOutput(f"output {number} shares memory with input {shared}, which eager's does not")
