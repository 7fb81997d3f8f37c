"""What parent and child say to each other; `wire.py` has the bytes."""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import torch

MAX_DIMS = 8

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
    first output in the same allocation; -1 for none. `elsewhere`: on the CPU where the worker's device is a GPU.
    `place`: where it lies in the result (`passbench.child.outputs.places`)."""

    kind: OutputKind
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    aliases: int
    shares: int = -1
    elsewhere: bool = False
    place: int = 0


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
class Stage:
    """Make the tensors of the next `Go` ready; nothing is called yet. `fill`: its calls find NaN in fresh memory. The
    next command is waited for without sleep."""

    batch: Batch
    outputs: tuple[OutputMeta, ...]
    seed: int
    strict: bool = True
    fill: bool = False


@dataclass(frozen=True)
class Wake:
    """Run one small kernel: a GPU takes its time to turn to another process, and no clock shall see that. The next
    command is waited for without sleep."""


@dataclass(frozen=True)
class Go:
    """Call on each staged set with a synchronisation after it. `seed`: set this seed before each call, inside the
    clock; `flush`: empty the L2 cache before each. `first` and `end` are numbers of calls: those from `first` on are
    made, up to `end` or to the last, after those before `first`. The next command is waited for without sleep."""

    seed: int | None = None
    flush: bool = False
    first: int = 0
    end: int | None = None


@dataclass(frozen=True)
class Observe:
    """Make the calls of `go`, and say which operators and kernels ran inside the replacements of the pass in `calls` of
    them from the `first` on. What is done around each call is what `Go` does."""

    go: Go
    first: int
    calls: int


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
