"""How a benchmark runs: one typed object, so that a record can say how its figures came about."""

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import torch

from passbench.layers import REMOVABLE_LAYERS

PROTOCOLS = ("passnet", "paper")
_CONTROL_GROUP = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class Settings:
    """Counts, limits and seed of a benchmark. `None` means the device's own default, see `resolved`.

    `protocol`: "passnet" keeps everything but the call outside the clock; "paper" sets the seed inside it, as the
    reference harness does. Times are in seconds, memory in bytes.
    """

    calls: int | None = None  # timed calls of each side by each clock, at least
    warmup: int | None = None  # untimed calls of each side before
    batch: int | None = None  # calls in one exchange between parent and child, at most
    batch_us: float = 1500.0  # microseconds that the calls of one exchange may take; two calls are made in any case
    pairs: int | None = None  # exchanges of each side by each clock; fewer if the times agree very well
    repeats: int | None = None  # if the times are noisy, up to so many times as many exchanges on top
    draws: int | None = None  # distributions of inputs on which correctness is decided before anything is timed
    draw_calls: int | None = None  # calls on each distribution but the first, at most; large inputs allow fewer
    noise: float = 0.2  # IQR/median above which times are noisy
    precision: float = 0.02  # half the width of the speedup's 95% interval, relative, at which timing may stop
    flush_l2: bool = False  # empty the L2 cache before every timed call
    seed: int | None = None  # of inputs and order; None draws one that no pass can know
    protocol: str = "passnet"
    double: bool = True  # compare both sides with a reference in double precision
    start_timeout: float = 180.0  # starting a child: importing torch, opening the device
    load_timeout: float = 60.0  # rebuilding the graph, importing and applying the pass
    first_call_timeout: float = 300.0  # the first call, which compiles
    call_timeout: float = 60.0  # every later exchange
    timing_budget: float | None = None  # fewer calls are timed if all would take longer than this
    shared_bytes: int | None = None  # shared memory that one call's inputs and outputs may take
    batch_bytes: int = 2 << 30  # shared memory that the inputs and outputs of an exchange of several calls may take
    child_memory_bytes: int | None = None  # address space of a child; none on CUDA, which reserves far more
    host_memory_bytes: int | None = None  # memory of a child and all that it starts; default: half of the machine's
    processes: int = 1000  # processes that a child may have running
    disk_bytes: int = 16 << 30  # what a child's files may take
    device_memory_share: float = 0.4  # share of a GPU's memory that a child's torch may take
    threads: int = 1  # CPU threads of torch in a child
    off: frozenset[str] = frozenset()  # REMOVABLE_LAYERS that are not applied; only tests of the layers set it

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"protocol {self.protocol!r} is unknown; there are {', '.join(PROTOCOLS)}")
        if unknown := self.off - REMOVABLE_LAYERS:
            raise ValueError(f"no layers to turn off: {', '.join(sorted(unknown))}")

    def resolved(self, device: torch.device) -> Self:
        """A copy without `None`: at least 100 timed calls on a GPU, a handful on the CPU, whose times mean nothing
        (docs/design.md, "Time")."""
        defaults = _CUDA if device.type == "cuda" else _CPU
        defaults = defaults | {"host_memory_bytes": machine_bytes() // 2}
        return replace(self, **{name: value for name, value in defaults.items() if getattr(self, name) is None})


_CUDA = {
    "calls": 100, "warmup": 25, "batch": 256, "pairs": 12, "repeats": 3, "draws": 5, "draw_calls": 16,
    "timing_budget": 30.0, "shared_bytes": 4 << 30,
}  # fmt: skip
_CPU = {
    "calls": 4, "warmup": 2, "batch": 2, "pairs": 2, "repeats": 0, "draws": 2, "draw_calls": 1, "timing_budget": 5.0,
    "shared_bytes": 1 << 30, "child_memory_bytes": 32 << 30,
}  # fmt: skip


def machine_bytes() -> int:
    """The machine's memory, or the container's where that is less."""
    least = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for file in _CONTROL_GROUP:
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
            least = min(least, int(Path(file).read_text()))
    return least
