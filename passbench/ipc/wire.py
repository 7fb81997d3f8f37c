"""Messages as bytes.

Parent to child: a length and a pickle, for the parent is trusted. Child to parent: fixed-size structs only, for what
runs in the child is not; nothing in them is executed, unpickled or parsed, and their text is shown to people alone.
"""

import os
import pickle
import select
import struct
import time
from dataclasses import replace

from passbench.ipc.messages import DTYPES, MAX_DIMS, Code, Command, OutputKind, OutputMeta, WorkerReply
from passbench.ipc.observation import BYTES as OBSERVED_BYTES

MAX_OUTPUTS = 64
TEXT_BYTES = 4096
SPIN_SECONDS = 0.05
_HEADER = struct.Struct("<QIIIIdd")  # nonce, code, what follows, index, count, microseconds on device and on host
_TEXT = struct.Struct("<I")
_OUTPUT = struct.Struct(f"<BBbbb?Q{2 * MAX_DIMS}q")  # kind, dtype, dimensions and, as named, what else is in OutputMeta
HEADER_BYTES = _HEADER.size
DETAIL_BYTES = _TEXT.size + TEXT_BYTES + _TEXT.size + MAX_OUTPUTS * _OUTPUT.size


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
        meta.kind, DTYPES.index(meta.dtype), dims, meta.aliases, meta.shares, meta.elsewhere, meta.place,
        *meta.shape, *pad, *meta.stride, *pad,
    )  # fmt: skip


def _decode_output(data: bytes, offset: int) -> OutputMeta:
    kind, dtype, dims, aliases, shares, elsewhere, place, *sizes = _OUTPUT.unpack_from(data, offset)
    if kind not in OutputKind._value2member_map_ or dtype >= len(DTYPES) or not 0 <= dims <= MAX_DIMS:
        raise ProtocolError("the worker's reply describes an impossible output")
    shape, stride = tuple(sizes[:dims]), tuple(sizes[MAX_DIMS : MAX_DIMS + dims])
    if any(s < 0 or s > 1 << 40 for s in (*shape, *stride)):
        raise ProtocolError("the worker's reply describes an output of impossible size")
    return OutputMeta(OutputKind(kind), DTYPES[dtype], shape, stride, aliases, shares, elsewhere, place)
