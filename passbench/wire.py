"""What parent and child say to each other.

Parent to child: a length and a pickle, for the parent is trusted. Child to parent: fixed-size structs only, for what
runs in the child is not; nothing in them is executed, unpickled or parsed, and their text is shown to people alone.
"""

import os
import pickle
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import torch

MAX_OUTPUTS = 64
MAX_DIMS = 8
TEXT_BYTES = 4096
_HEADER = struct.Struct("<QIIIId")  # nonce, code, whether a detail follows, index, count, device microseconds
_TEXT = struct.Struct("<I")
_OUTPUT = struct.Struct(f"<BBbb{2 * MAX_DIMS}q")  # kind, dtype, dimensions, aliased input, shape, stride
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


class Kind(IntEnum):
    """What an output is; Python numbers cross the border as tensors without dimensions."""

    TENSOR = 0
    INT = 1
    FLOAT = 2
    BOOL = 3
    NONE = 4


class OutputMeta(NamedTuple):
    """One output as eager gave it; `aliases` is the number of the input whose memory it shares, -1 for none."""

    kind: Kind
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    aliases: int


class TensorAt(NamedTuple):
    """A tensor in the arena: byte offset, dtype, and shape and stride in elements."""

    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True)
class CallSpec:
    """One call: where its inputs lie (or the integer that is the input), and where its outputs go."""

    inputs: tuple[TensorAt | int, ...]
    outputs: tuple[TensorAt | None, ...]


@dataclass(frozen=True)
class Open:
    """Map the arena; `handle` is what `arena.Arena.handle` gave."""

    handle: tuple


@dataclass(frozen=True)
class Load:
    """Build the callable that `compiler` makes of a graph; `pass_dir` is the copy that the parent has validated."""

    graph: str
    compiler: str
    pass_dir: str | None = None


@dataclass(frozen=True)
class Describe:
    """Call once and say what the outputs are."""

    call: CallSpec
    seed: int


@dataclass(frozen=True)
class Run:
    """Call on each set and copy the outputs out. `fill`: allocations are filled with NaN beforehand."""

    calls: tuple[CallSpec, ...]
    outputs: tuple[OutputMeta, ...]
    seed: int
    fill: bool


@dataclass(frozen=True)
class Stage:
    """Make the tensors of the next `Go` ready; nothing is called yet."""

    calls: tuple[CallSpec, ...]
    outputs: tuple[OutputMeta, ...]
    seed: int


@dataclass(frozen=True)
class Go:
    """Call on each staged set with a synchronisation after it. `events`: also between two CUDA events, and report
    their median; `seed`: set this seed before each call, inside the clock; `empty`: call nothing."""

    events: bool = False
    seed: int | None = None
    empty: bool = False


@dataclass(frozen=True)
class Collect:
    """Copy the outputs of the last `Go` out."""


Command = Open | Load | Describe | Run | Stage | Go | Collect


@dataclass(frozen=True)
class Reply:
    """A child's answer. `index`: the call that failed; `count`: matches of the pass; `text`: opaque, for people."""

    code: Code
    index: int = 0
    count: int = 0
    device_us: float = 0.0
    text: str = ""
    outputs: tuple[OutputMeta, ...] = ()


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


def read_command(fd: int) -> tuple[int, Command] | None:
    """The next command and its nonce, None when the parent has closed its end. For the child alone."""
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


def encode_reply(nonce: int, reply: Reply) -> bytes:
    """The header, and the detail where there is a text or a description of outputs."""
    detail = bool(reply.text or reply.outputs)
    head = _HEADER.pack(nonce, reply.code, detail, reply.index, reply.count, reply.device_us)
    if not detail:
        return head
    text = reply.text.encode("utf-8", "replace")[:TEXT_BYTES]
    outputs = b"".join(_encode_output(meta) for meta in reply.outputs)
    return b"".join(
        [head, _TEXT.pack(len(text)), text.ljust(TEXT_BYTES, b"\0"), _TEXT.pack(len(reply.outputs)),
         outputs.ljust(MAX_OUTPUTS * _OUTPUT.size, b"\0")]
    )  # fmt: skip


def decode_header(data: bytes, nonce: int) -> tuple[Reply, bool]:
    """A reply without its detail, and whether the detail follows. Raises ProtocolError on anything else."""
    found, code, detail, index, count, device_us = _HEADER.unpack(data)
    if found != nonce or code not in Code._value2member_map_ or detail > 1 or not 0 <= device_us < 1e12:
        raise ProtocolError("the worker answered out of turn or with an unknown code")
    return Reply(Code(code), index, min(count, 1 << 30), device_us), bool(detail)


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
        meta.kind, DTYPES.index(meta.dtype), dims, meta.aliases, *meta.shape, *pad, *meta.stride, *pad
    )  # fmt: skip


def _decode_output(data: bytes, offset: int) -> OutputMeta:
    kind, dtype, dims, aliases, *sizes = _OUTPUT.unpack_from(data, offset)
    if kind not in Kind._value2member_map_ or dtype >= len(DTYPES) or not 0 <= dims <= MAX_DIMS:
        raise ProtocolError("the worker's reply describes an impossible output")
    shape, stride = tuple(sizes[:dims]), tuple(sizes[MAX_DIMS : MAX_DIMS + dims])
    if any(s < 0 or s > 1 << 40 for s in (*shape, *stride)):
        raise ProtocolError("the worker's reply describes an output of impossible size")
    return OutputMeta(Kind(kind), DTYPES[dtype], shape, stride, aliases)
