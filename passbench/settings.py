"""How a benchmark runs: one typed object, so that a record can say how its figures came about."""

from dataclasses import dataclass, replace
from typing import Self

import torch

PROTOCOLS = ("passnet", "paper")


@dataclass(frozen=True)
class Settings:
    """Counts, limits and seed of a benchmark. `None` means the device's own default, see `resolved`.

    `protocol`: "passnet" keeps everything but the call outside the clock; "paper" sets the seed inside it, as the
    reference harness does. Times are in seconds, memory in bytes.
    """

    calls: int | None = None  # timed calls of each side in one round
    warmup: int | None = None  # untimed calls of each side before the first round
    batch: int | None = None  # calls in one exchange between parent and child
    draws: int | None = None  # input sets on which correctness is decided
    repeats: int | None = None  # further rounds at most while the times are noisy
    noise: float = 0.2  # a round is noisy above this IQR/median
    seed: int | None = None  # of inputs and order; None draws one that no pass can know
    protocol: str = "passnet"
    start_timeout: float = 180.0  # starting a child: importing torch, opening the device
    load_timeout: float = 60.0  # rebuilding the graph, importing and applying the pass
    first_call_timeout: float = 300.0  # the first call, which compiles
    call_timeout: float = 60.0  # every later exchange
    timing_budget: float | None = None  # fewer calls are timed where they would take longer than this
    arena_bytes: int | None = None  # shared memory that an exchange's inputs and outputs may take
    child_memory_bytes: int | None = None  # address space of a child; none on CUDA, which reserves far more
    threads: int = 1  # CPU threads of torch in a child

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"protocol {self.protocol!r} is unknown; there are {', '.join(PROTOCOLS)}")

    def resolved(self, device: torch.device) -> Self:
        """A copy without `None`: at least 100 timed calls on a GPU, a handful on the CPU, whose times mean nothing
        (DESIGN section 5, Time)."""
        defaults = _CUDA if device.type == "cuda" else _CPU
        return replace(self, **{name: value for name, value in defaults.items() if getattr(self, name) is None})


_CUDA = {
    "calls": 100, "warmup": 25, "batch": 10, "draws": 4, "repeats": 3, "timing_budget": 30.0,
    "arena_bytes": 4 << 30,
}  # fmt: skip
_CPU = {
    "calls": 4, "warmup": 1, "batch": 2, "draws": 2, "repeats": 0, "timing_budget": 5.0,
    "arena_bytes": 1 << 30, "child_memory_bytes": 32 << 30,
}  # fmt: skip
