"""What an attack or an honest pass is, and the verdicts that one can get."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from passbench.layers import REMOVABLE_LAYERS
from passbench.result import VariantResult
from storage.records import Sample

SUPPORT = Path(__file__).parents[2] / "support"
EXACT, CLOSE = -10, -3  # `t_min` at most; -3 takes what kernels in single and half precision do


@dataclass(frozen=True)
class Step:
    """What is expected once the layers of the steps before are off: `layer` decides, with one of the statuses and a
    reason in which the pattern `reason` is found. `t_min` of an "ok" lies between `least` and `most`."""

    layer: str
    statuses: tuple[str, ...]
    reason: str = ""
    most: int = CLOSE
    least: int = EXACT

    def __str__(self) -> str:
        return f"{self.layer}: {' or '.join(self.statuses)} {self.reason}".strip()

    def fits(self, result: VariantResult) -> bool:
        """Whether a result is as expected."""
        if result.status not in self.statuses:
            return False
        if result.status == "ok":
            return self.least <= result.t_min <= self.most
        return re.search(self.reason, result.reason) is not None


@dataclass(frozen=True)
class Attack:
    """A directory in `tests/support/attacks`, what it is tried on, and why it fails."""

    name: str
    sample: Callable[[], Sample]
    steps: tuple[Step, ...]
    why: str
    devices: tuple[str, ...] = ("cpu", "cuda")

    @property
    def directory(self) -> Path:
        return SUPPORT / "attacks" / self.name

    def off(self, number: int) -> frozenset[str]:
        """The layers that are off when step `number` is expected."""
        return frozenset(step.layer for step in self.steps[:number]) & REMOVABLE_LAYERS


@dataclass(frozen=True)
class Honest:
    """A directory in `tests/support/honest`, what it is for, and at which level it agrees with eager."""

    name: str
    sample: Callable[[], Sample]
    most: int = CLOSE
    devices: tuple[str, ...] = ("cpu", "cuda")

    @property
    def directory(self) -> Path:
        return SUPPORT / "honest" / self.name


def static(rule: str) -> Step:
    """Refused for a rule of the static policy."""
    return Step("static_policy", ("rejected",), f"{rule}: ")


READ = Step("evidence", ("rejected",), "evidence_read: ")
FOREIGN_KERNEL = Step("evidence", ("rejected",), "evidence_kernel: ")
WRONG = Step("comparison", ("wrong",), "differs from eager at every level")
STALE = Step("fresh_inputs", ("wrong",), "differs from eager at every level")
NO_GAIN = Step("nothing", ("ok",))
WORKS = Step("no layer left", ("ok",))  # which shows that the layer before is the one that holds
UNWRITTEN = Step("poisoned_outputs", ("runtime_error", "wrong"), "NaN where eager has none|was never written|differs")
ENDED = Step("two_processes", ("runtime_error",), "ended")
NOT_DELIVERED = Step("inputs_unchanged", ("wrong",), "writes over its input")
"""Inputs of sealed calls that nobody has delivered when the child answers: the calls have not been made."""
REWRITTEN = Step("sealed_calls", ("runtime_error",), "has changed after the call|was never written")
SPOILT = "NaN where eager has none|was never written|differs from eager"


def contract(status: str, reason: str) -> Step:
    """The pass cannot be loaded or applied."""
    return Step("contract", (status,), reason)


def output(status: str, reason: str) -> Step:
    """Outputs are not of eager's kind."""
    return Step("output_contract", (status,), reason)


RETURNED_AGAIN = output("runtime_error", "returns memory that an?(other| earlier) call has returned")


UNEVEN = "evidence_uneven: "
REMEMBERED = Step(
    "fresh_inputs",
    ("wrong", "ok", "runtime_error", "rejected"),
    f"{SPOILT}|{RETURNED_AGAIN.reason}|{UNEVEN}|memory that was allocated before their calls",
)
"""What was remembered is of no use: it is stale, was returned before, lies in older memory, or never comes. A
call that finds it launches less than others, so that the evidence refuses the pass where it comes to such a call first.
"""
READ_OR_RETURNED = Step("evidence", ("rejected", "runtime_error"), READ.reason + "|" + RETURNED_AGAIN.reason)


def late(*statuses: str) -> Step:
    """Work after the answer finds its inputs gone."""
    return Step("late_inputs", statuses or ("wrong", "runtime_error"), SPOILT)


def outside(reason: str = "memory_outside") -> Step:
    """A kernel reaches past its arguments: Triton's interpreter refuses that, a GPU does not, where `reason` is found
    instead."""
    return Step("kernel_memory", ("compile_error", "runtime_error", "wrong"), f"memory_outside|{reason}")
