"""What PassBench says about one variant: a row of `storage.schema.RESULTS`, typed."""

import platform
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    import torch

STATUSES = ("ok", "wrong", "runtime_error", "compile_error", "no_match", "rejected", "timeout")
ERROR_CODES = {"wrong": 1, "runtime_error": 2, "compile_error": 3}
"""Error codes of docs/scores.md; other failures are never tolerated and have none."""

EAGER_FAILED = "eager failed"
"""Start of the reason of a variant on which eager itself fails: it says nothing about the pass, has no error code
and enters no score."""

EAGER_VARIES = "eager called twice agrees with itself"
"""In the reason of a variant that is not right at t = −5 and on which eager itself is not either."""

NO_GRAPH_OF_EAGER, NO_GRAPH_OF_CANDIDATE = "no CUDA graph of eager", "no CUDA graph of the candidate"
"""Starts of `Times.device_note` where a side could not be captured."""


class VariantFailure(Exception):
    """The variant's verdict: a status and a reason. `eager`: eager itself failed, and the pass is not to blame."""

    def __init__(self, status: str, reason: str, *, eager: bool = False) -> None:
        super().__init__(reason)
        self.status, self.reason, self.eager = status, reason, eager

    @classmethod
    def of(cls, reason: str, status: str, *, eager: bool) -> Self:
        """A failure of the candidate with this status, or of eager, whose failures all have one status."""
        return cls("runtime_error", f"{EAGER_FAILED}: {reason}", eager=True) if eager else cls(status, reason)

    @property
    def error_code(self) -> int | None:
        """Its code in the scores; None for a failure that is never tolerated, and for eager's."""
        return None if self.eager else ERROR_CODES.get(self.status)


class Finding(NamedTuple):
    """A breach of the static policy: rule name, file, line, and what to write instead."""

    rule: str
    file: str
    line: int
    message: str


@dataclass(frozen=True)
class Timing:
    """What a call takes, and interquartile ranges over exchanges, in microseconds a call.

    `clock` is "e2e" (the call as a user makes it, synchronisation included) or "device" (what the GPU takes when the
    host costs nothing, see `passbench.timing.device_clock`). `eager_us` and `candidate_us` are what calls take
    undisturbed (`passbench.timing.statistics.summarise`). `calls` were timed on each side. `repeats`: how many times
    as many pairs again were begun because of noise. `noisy`: IQR/median stayed above the limit. `speedup_low` and
    `speedup_high`: 95% interval of the speedup.
    """

    clock: str
    eager_us: float
    candidate_us: float
    eager_iqr_us: float
    candidate_iqr_us: float
    calls: int
    repeats: int
    noisy: bool
    speedup_low: float
    speedup_high: float

    @property
    def speedup(self) -> float:
        """Eager time over candidate time."""
        return self.eager_us / self.candidate_us


class Times(NamedTuple):
    """The timings of a variant, one a clock. `device_method` says where the device clock's come from: "graph", replays
    timed by the parent, or "kernels", the busy time that the child reports; None where there is none. `device_note`
    says why it is not "graph"."""

    timings: tuple[Timing, ...] = ()
    device_method: str | None = None
    device_note: str = ""


class Errors(NamedTuple):
    """Relative errors of both sides against the same graph in double precision."""

    eager: float
    candidate: float


@dataclass(frozen=True)
class VariantResult:
    """One variant under one compiler; fields as the columns of `storage.schema.RESULTS`.

    `levels` has what `t_min` is for each output whose bits have differed, `levels_eager` the same of `t_min_eager`;
    None where an output agrees at no level. Rows leave these out.
    """

    sample: str
    category: str
    variant_hash: str
    compiler: str
    status: str
    reason: str = ""
    error_code: int | None = None
    t_min: int | None = None
    t_min_eager: int | None = None
    levels: dict[int, int | None] = field(default_factory=dict)
    levels_eager: dict[int, int | None] = field(default_factory=dict)
    max_abs_error: float | None = None
    errors: Errors | None = None
    times: Times = field(default_factory=Times)
    times_meaningful: bool = False
    findings: tuple[Finding, ...] = ()
    layers: tuple[str, ...] = ()
    layers_missing: dict[str, str] = field(default_factory=dict)
    surroundings: dict[str, str] = field(default_factory=dict)
    matches: int | None = None
    library_ops: tuple[str, ...] | None = None
    capture_used: bool | None = None
    pass_files: tuple[tuple[str, str], ...] = ()
    device: str = ""
    protocol: str = ""
    seconds: float = 0.0
    numerics: str | None = None
    seed: int | None = None
    commit: str | None = None
    busy: str = ""
    hardware: dict[str, str] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)

    @property
    def timings(self) -> tuple[Timing, ...]:
        """One a clock."""
        return self.times.timings

    @property
    def kernels_only(self) -> bool | None:
        """Whether no operator of the library computed inside replacements; None where nobody looked.

        False for a pass that had a CUDA graph recorded: what the graph holds was not seen.
        """
        return None if self.library_ops is None else not (self.library_ops or self.capture_used)

    def speedup(self, clock: str) -> float | None:
        """Eager time over candidate time by "e2e" or "device" clock, None where it was not measured."""
        return next((t.speedup for t in self.timings if t.clock == clock), None)

    def to_row(self, *, run: str, author: str, model: str = "", attempt: int = 0) -> dict[str, Any]:
        """A row of `storage.schema.RESULTS`."""
        fields = {name: getattr(self, name) for name in _PLAIN}
        return {
            "run": run,
            "author": author,
            "model": model,
            "attempt": attempt,
            **fields,
            "error_eager": self.errors.eager if self.errors else None,
            "error_candidate": self.errors.candidate if self.errors else None,
            "speedup_e2e": self.speedup("e2e"),
            "speedup_device": self.speedup("device"),
            "timings": [asdict(t) for t in self.timings],
            "device_method": self.times.device_method,
            "device_note": self.times.device_note,
            "findings": [f._asdict() for f in self.findings],
            "layers": list(self.layers),
            "library_ops": None if self.library_ops is None else list(self.library_ops),
            "kernels_only": self.kernels_only,
            "pass_files": [{"path": path, "content": content} for path, content in self.pass_files],
            "libraries": libraries(),
        }


_PLAIN = (
    "sample", "category", "variant_hash", "compiler", "status", "error_code", "reason", "t_min", "t_min_eager",
    "max_abs_error", "times_meaningful", "matches", "device", "protocol", "seconds", "layers_missing", "surroundings",
    "numerics", "seed", "commit", "busy", "hardware", "capture_used", "phases",
)  # fmt: skip


def libraries() -> dict[str, str]:
    """Versions that the figures depend on."""
    import numpy as np
    import torch
    import triton

    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "numpy": np.__version__,
    }
    return versions | ({"cuda": torch.version.cuda} if torch.version.cuda else {})


def device_name(device: "torch.device") -> str:
    """ "cpu", or the GPU's name."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
