"""What parent and child say to each other.

Parent to child: a length and a pickle, for the parent is trusted. Child to parent: fixed-size structs only, for what
runs in the child is not; nothing in them is executed, unpickled or parsed, and their text is shown to people alone.
"""

import os
import pickle
import select
import struct
import time
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

import torch

from passbench.ipc.observation import BYTES as OBSERVED_BYTES

MAX_OUTPUTS = 64
MAX_DIMS = 8
TEXT_BYTES = 4096
SPIN_SECONDS = 0.05
_HEADER = struct.Struct("<QIIIIdd")  # nonce, code, what follows, index, count, microseconds on device and on host
_TEXT = struct.Struct("<I")
_OUTPUT = struct.Struct(f"<BBbbb?{2 * MAX_DIMS}q")  # kind, dtype, dimensions, aliases, shares, elsewhere, shape, stride
HEADER_BYTES = _HEADER.size
DETAIL_BYTES = _TEXT.size + TEXT_BYTES + _TEXT.size + MAX_OUTPUTS * _OUTPUT.size

DTYPES = tuple(
    getattr(torch, name)
    for name in """float32 float16 bfloat16 float64 int64 int32 int16 int8 uint8 bool complex64 complex128 complex32
    uint16 uint32 uint64 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz""".split()
)
"""The dtypes that cross the border, by number."""


class Code(IntEnum):
    """What a reply says."""

    OK = 0
    NO_MATCH = 1
    COMPILE_ERROR = 2
    RUNTIME_ERROR = 3
    BAD_OUTPUT = 4  # count, type, dtype, shape or aliasing differ from eager's
    UNCAPTURABLE = 5  # the calls cannot be captured in a CUDA graph; the process is of no use any more


class OutputKind(IntEnum):
    """What an output is; Python numbers cross the border as tensors without dimensions."""

    TENSOR = 0
    INT = 1
    FLOAT = 2
    BOOL = 3
    NONE = 4


class OutputMeta(NamedTuple):
    """One output as eager gave it. `aliases` is the number of the input whose memory it shares, `shares` that of the
    first output in the same allocation; -1 for none. `elsewhere`: on the CPU where the worker's device is a GPU."""

    kind: OutputKind
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    aliases: int
    shares: int = -1
    elsewhere: bool = False


class Block(NamedTuple):
    """Places in the shared memory for one input or output of every call of a batch.

    A place starts at each of `starts`, in bytes and ascending, and has `size` bytes: those of the tensor, padded.
    Inputs lie at irregular distances, outputs side by side. Shape and stride are in elements.
    """

    starts: tuple[int, ...] | range
    size: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def offset(self) -> int:
        """Where the first place starts."""
        return self.starts[0]

    @property
    def end(self) -> int:
        """Where the last place ends."""
        return self.starts[-1] + self.size


class Batch(NamedTuple):
    """Where the inputs of `calls` calls lie, and where their outputs go. An input may be an integer instead of a block.

    Call n finds its inputs at place `order[n]` of every block, and puts its outputs at place n. `order` is random, so
    no call can tell where another's inputs lie. Other places hold values that belong to no call.

    A timed exchange seals the calls in `sealed`. The inputs of call `sealed[k]` wait at place `late[k]` until the call
    before it has ended. Its outputs are copied out as soon as it ends. If `late` is empty, inputs of sealed calls are
    in place from the start. Where no call is sealed, the places `late` hold what others hold, too.
    """

    calls: int
    inputs: tuple[Block | int, ...]
    outputs: tuple[Block | None, ...]
    order: tuple[int, ...]
    sealed: tuple[int, ...] = ()
    late: tuple[int, ...] = ()


@dataclass(frozen=True)
class Open:
    """Map the shared memory; `handle` is that of the parent's `shared_memory.SharedMemory`."""

    handle: tuple


@dataclass(frozen=True)
class Shut:
    """Let go of the shared memory: it is about to be replaced."""


@dataclass(frozen=True)
class Load:
    """Build the callable that `compiler` makes of a graph; `pass_dir` is the copy that the parent has validated.

    `inputs` stands for the shapes and dtypes that it will be called with. A baseline that has been built for the same
    before is kept, since it may have compiled in its first call. `keep`: so are all others that were built with `keep`,
    as long as nothing is built without.
    """

    graph: str
    compiler: str
    pass_dir: str | None = None
    inputs: str = ""
    keep: bool = False


@dataclass(frozen=True)
class Describe:
    """Call once and say what the outputs are."""

    batch: Batch
    seed: int


@dataclass(frozen=True)
class RunCalls:
    """Call on each set and copy the outputs out. `fill`: allocations are filled with NaN beforehand; `strict`: outputs
    must be what `outputs` says, not only fit into its place."""

    batch: Batch
    outputs: tuple[OutputMeta, ...]
    seed: int
    fill: bool
    strict: bool = True


@dataclass(frozen=True)
class Observe:
    """Make the calls as a timed exchange does, and say which operators and kernels ran inside the replacements of the
    pass in `calls` of them from the `first` on."""

    batch: Batch
    seed: int
    first: int
    calls: int


@dataclass(frozen=True)
class Stage:
    """Make the tensors of the next `Go` ready; nothing is called yet. The next command is waited for without sleep."""

    batch: Batch
    outputs: tuple[OutputMeta, ...]
    seed: int
    strict: bool = True


@dataclass(frozen=True)
class Wake:
    """Run one small kernel: a GPU takes its time to turn to another process, and no clock shall see that. The next
    command is waited for without sleep."""


@dataclass(frozen=True)
class Go:
    """Call on each staged set with a synchronisation after it. `seed`: set this seed before each call, inside the
    clock; `flush`: empty the L2 cache before each. `first` and `end` are numbers of calls: those from `first` on are
    made, up to `end` or to the last, after those before `first`."""

    seed: int | None = None
    flush: bool = False
    first: int = 0
    end: int | None = None


@dataclass(frozen=True)
class Profile:
    """Call on each staged set under the profiler, and report how long the device was busy."""


@dataclass(frozen=True)
class Collect:
    """Copy the outputs of the last `Go` or `Profile` out."""


@dataclass(frozen=True)
class CaptureCalls:
    """Capture the calls of a batch in one CUDA graph, for `ReplayCalls`. Inputs must be there: it calls once before.

    Within the graph, the inputs of sealed calls arrive right before the call and its outputs are taken right after.
    """

    batch: Batch
    outputs: tuple[OutputMeta, ...]
    strict: bool = True


@dataclass(frozen=True)
class ArmReplay:
    """Make the captured calls ready for a replay: set the seed, poison their outputs, unless the replay is of no calls
    (`empty`). The next command is waited for without sleep."""

    seed: int
    empty: bool = False


@dataclass(frozen=True)
class ReplayCalls:
    """Replay the captured calls and wait for the device. `empty`: replay a graph of one small kernel instead."""

    empty: bool = False


@dataclass(frozen=True)
class CollectReplayed:
    """Copy the outputs of the last `ReplayCalls` out."""


@dataclass(frozen=True)
class Warm:
    """Do what every pass would wait for: compile a kernel of PassBench's own, start the profiler."""


@dataclass(frozen=True)
class Ping:
    """Answer once the device has done all that it was given; what went wrong there shows here."""


Command = (
    Open
    | Shut
    | Load
    | Describe
    | RunCalls
    | Observe
    | Stage
    | Wake
    | Go
    | Profile
    | Collect
    | CaptureCalls
    | ArmReplay
    | ReplayCalls
    | CollectReplayed
    | Warm
    | Ping
)


@dataclass(frozen=True)
class WorkerReply:
    """A child's answer.

    `index`: the call that failed. `count`: matches of the pass. `device_us`: how long the device was busy for each call
    of a `Profile`. `host_us`: mean of the calls of a `Go` after the first, with synchronisation, by the child's clock.
    `text`: opaque, for people. `observed`: an `observation.Observation`, encoded.
    """

    code: Code
    index: int = 0
    count: int = 0
    device_us: float = 0.0
    host_us: float = 0.0
    text: str = ""
    outputs: tuple[OutputMeta, ...] = ()
    observed: bytes = b""


class ProtocolError(Exception):
    """The child's bytes are not a reply to what was asked."""


def clean_text(data: bytes) -> str:
    """At most `TEXT_BYTES` of untrusted bytes as text without control characters other than newlines."""
    text = data[:TEXT_BYTES].decode("utf-8", "replace")
    return "".join(c if c == "\n" or c.isprintable() else "?" for c in text).strip()


def encode_command(nonce: int, command: Command) -> bytes:
    """Length, nonce and pickle of a command."""
    body = pickle.dumps((nonce, command), protocol=pickle.HIGHEST_PROTOCOL)
    return struct.pack("<Q", len(body)) + body


def read_command(fd: int, *, spin: bool = False) -> tuple[int, Command] | None:
    """The next command and its nonce, None when the parent has closed its end. For the child alone. `spin`: wait
    without sleeping at first, since waking up takes up to 0.2 ms."""
    if spin:
        poll, deadline = select.poll(), time.monotonic() + SPIN_SECONDS
        poll.register(fd, select.POLLIN)
        while not poll.poll(0) and time.monotonic() < deadline:
            pass
    head = _read_exactly(fd, 8)
    if head is None:
        return None
    body = _read_exactly(fd, struct.unpack("<Q", head)[0])
    return None if body is None else pickle.loads(body)


def _read_exactly(fd: int, size: int) -> bytes | None:
    chunks = []
    while size:
        chunk = os.read(fd, min(size, 1 << 20))
        if not chunk:
            return None
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)


_NOTHING, _DETAIL, _OBSERVED = 0, 1, 2  # what follows a header


def encode_reply(nonce: int, reply: WorkerReply) -> bytes:
    """The header, and the detail where there is a text or a description of outputs, or the observation."""
    follows = _OBSERVED if reply.observed else _DETAIL if reply.text or reply.outputs else _NOTHING
    head = _HEADER.pack(nonce, reply.code, follows, reply.index, reply.count, reply.device_us, reply.host_us)
    if follows == _OBSERVED:
        return head + reply.observed
    if follows == _NOTHING:
        return head
    text = reply.text.encode("utf-8", "replace")[:TEXT_BYTES]
    outputs = b"".join(_encode_output(meta) for meta in reply.outputs)
    return b"".join(
        [head, _TEXT.pack(len(text)), text.ljust(TEXT_BYTES, b"\0"), _TEXT.pack(len(reply.outputs)),
         outputs.ljust(MAX_OUTPUTS * _OUTPUT.size, b"\0")]
    )  # fmt: skip


def decode_header(data: bytes, nonce: int) -> tuple[WorkerReply, int]:
    """A reply without what follows, and the kind of that, 0 for nothing. Raises ProtocolError on anything else."""
    found, code, follows, index, count, device_us, host_us = _HEADER.unpack(data)
    known = code in Code._value2member_map_ and follows in (_NOTHING, _DETAIL, _OBSERVED)
    if found != nonce or not known or not 0 <= device_us < 1e12 or not 0 <= host_us < 1e12:
        raise ProtocolError("the worker answered out of turn or with an unknown code")
    return WorkerReply(Code(code), index, min(count, 1 << 30), device_us, host_us), follows


def rest_bytes(follows: int) -> int:
    """The size of what follows a header."""
    return DETAIL_BYTES if follows == _DETAIL else OBSERVED_BYTES


def decode_rest(reply: WorkerReply, follows: int, data: bytes) -> WorkerReply:
    """The reply with what follows its header. Raises ProtocolError."""
    if follows == _OBSERVED:
        return replace(reply, observed=data)
    text, outputs = decode_detail(data)
    return replace(reply, text=text, outputs=outputs)


def decode_detail(data: bytes) -> tuple[str, tuple[OutputMeta, ...]]:
    """Text and output descriptions. Raises ProtocolError on impossible counts, dtypes or sizes."""
    (length,) = _TEXT.unpack_from(data, 0)
    (outputs,) = _TEXT.unpack_from(data, _TEXT.size + TEXT_BYTES)
    if length > TEXT_BYTES or outputs > MAX_OUTPUTS:
        raise ProtocolError("the worker's reply gives an impossible length")
    start = 2 * _TEXT.size + TEXT_BYTES
    metas = tuple(_decode_output(data, start + i * _OUTPUT.size) for i in range(outputs))
    return clean_text(data[_TEXT.size : _TEXT.size + length]), metas


def _encode_output(meta: OutputMeta) -> bytes:
    pad = (0,) * (MAX_DIMS - len(meta.shape))
    dims = len(meta.shape)
    return _OUTPUT.pack(
        meta.kind, DTYPES.index(meta.dtype), dims, meta.aliases, meta.shares, meta.elsewhere,
        *meta.shape, *pad, *meta.stride, *pad,
    )  # fmt: skip


def _decode_output(data: bytes, offset: int) -> OutputMeta:
    kind, dtype, dims, aliases, shares, elsewhere, *sizes = _OUTPUT.unpack_from(data, offset)
    if kind not in OutputKind._value2member_map_ or dtype >= len(DTYPES) or not 0 <= dims <= MAX_DIMS:
        raise ProtocolError("the worker's reply describes an impossible output")
    shape, stride = tuple(sizes[:dims]), tuple(sizes[MAX_DIMS : MAX_DIMS + dims])
    if any(s < 0 or s > 1 << 40 for s in (*shape, *stride)):
        raise ProtocolError("the worker's reply describes an output of impossible size")
    return OutputMeta(OutputKind(kind), DTYPES[dtype], shape, stride, aliases, shares, elsewhere)
