"""The offline author where there is a GPU: `distill`'s regions, and what PassBench measures decides.

It starts from what `distill` expects to be best and departs from it one step at a time (a region more or less, other
block sizes and warps, sizes as arguments), on a few variants of the sample, until its time is up. Where that is wrong
at t = −5, it starts again without the ops that a kernel rounds otherwise than eager does (`agent.rounding`). A pass
that is wrong, or not clearly faster than eager, is not submitted.
"""

import math
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from agent.author import Attempt, Submission
from agent.distill import Distill
from agent.pass_source import Style
from agent.rounding import Rounding
from agent.search import Measure, Search
from agent.task import Task
from passbench.result import VariantResult
from storage.records import Sample, Variant

LEVEL = -5
"""The tolerance level at which a pass must be right in every measured variant."""

LONG = 3.0
"""Microseconds from which on a kernel's blocks and warps are worth a search: shorter ones hide behind the host."""


@dataclass(frozen=True)
class Choice:
    """A pass that could be written for a task: the patterns to replace, sorted, and how."""

    patterns: tuple[str, ...]
    style: Style


@dataclass(frozen=True)
class Best:
    """The best choice found, and the task that has its patterns: the one without what `rounding` leaves to eager."""

    choice: Choice
    rounding: Rounding


@dataclass(frozen=True)
class Start:
    """Where a search may start: the choice that is expected to be best for a task, and what measures its choices."""

    task: Task
    choice: Choice
    measure: Measure[Choice]


@dataclass
class Tuned:
    """`seconds` is what measuring one sample may take, `probes` how many of its variants are measured, `reach` how many
    microseconds a call a region may be expected to cost and still be tried. `found` has the answers by family: a family
    is searched once."""

    distill: Distill = field(default_factory=Distill)
    name: str = "distill"
    seconds: float = 60.0
    probes: int = 6
    reach: float = 15.0
    found: dict[str, Best | None] = field(default_factory=dict)

    @property
    def identity(self) -> Mapping[str, Any]:
        """What decides how attempts go; there is no model."""
        return {"model": "", "seconds": self.seconds, "probes": self.probes, "reach": self.reach}

    def begin(self, saved: Iterable[Mapping[str, Any]]) -> None:
        """Start a run. Nothing goes on from trajectories: a sample's search is shorter than what saves it."""
        self.found.clear()

    def write(self, sample: Sample, directory: Path) -> Submission:
        """The pass that is expected to be best; nothing is measured."""
        return self.distill.write(sample, directory)

    def attempt(self, sample: Sample, directory: Path, attempt: Attempt) -> Submission:
        """The best pass found; without a GPU what `distill` writes."""
        if not attempt.device.startswith("cuda"):
            return self.write(sample, directory)
        task = self.distill.task(sample, -self.reach)
        start = self._start(task)
        if not start.patterns:
            return task.write((), start.style, directory)
        if sample.family_hash not in self.found:
            self.found[sample.family_hash] = self._best(task, sample, attempt)
        best = self.found[sample.family_hash]
        if best is None:
            return Submission("eager", reason="no pass that was measured is right and faster than eager")
        if best.rounding is not Rounding.ANY:
            task = self.distill.task(sample, -self.reach, best.rounding)
        known = [pattern for pattern in best.choice.patterns if pattern in task.gains()]
        return task.write(known, best.choice.style, directory)

    def _best(self, task: Task, sample: Sample, attempt: Attempt) -> Best | None:
        """Looks first around the first start that is right, then around the whole, which may be right in part."""
        end = time.monotonic() + self.seconds
        measured: dict[Choice, float | None] = {}
        starts: dict[Rounding, Start] = {}
        best, score = None, 0.0

        def look(around: Rounding) -> Choice | None:
            """Searches from a start; what is found is the best if it is right again and no other is better."""
            nonlocal best, score
            start = starts[around]
            search = Search(start.measure, partial(steps, start.task), end - time.monotonic(), measured=measured)
            choice = search.run(start.choice)
            if choice is not None and (measured[choice] or 0.0) > score:
                if self._measure(start.task, sample, attempt, 2 * self.probes)(choice) is None:
                    measured[choice] = None
                else:
                    best, score = Best(choice, around), measured[choice] or 0.0
            return choice

        for rounding in Rounding:
            rest = task if rounding is Rounding.ANY else self.distill.task(sample, -self.reach, rounding)
            measure = self._measure(rest, sample, attempt, self.probes)
            start = starts[rounding] = Start(rest, self._start(rest), measure)
            if start.choice.patterns and start.choice not in measured:
                measured[start.choice] = measure(start.choice)
            last = rounding is list(Rounding)[-1] or time.monotonic() >= end
            if measured.get(start.choice) is None and not last:
                continue
            found = look(rounding) if start.choice.patterns else None
            if found is None or best is not None or time.monotonic() >= end:
                break
        if rounding is not Rounding.ANY and (best is None or time.monotonic() < end):
            look(Rounding.ANY)
        return best

    def _start(self, task: Task) -> Choice:
        patterns = task.likely(self.distill.margin) or task.likely(-math.inf)
        return Choice(tuple(sorted(patterns)), self.distill.style)

    def _measure(self, task: Task, sample: Sample, attempt: Attempt, probes: int) -> Measure[Choice]:
        probed = replace(sample, variants=spread(sample.variants, probes))
        scores: dict[str, float | None] = {}  # choices can come down to the same source

        def measure(choice: Choice) -> float | None:
            with tempfile.TemporaryDirectory(prefix="passnet-") as scratch:
                directory = Path(scratch) / "pass"
                handed = task.write(choice.patterns, choice.style, directory)
                if handed.pass_dir is None:
                    return None
                source = "".join(file.read_text("utf-8") for file in sorted(directory.iterdir()))
                if source not in scores:
                    scores[source] = speedup(attempt.measure(probed, directory))
                    attempt.say(f"{len(choice.patterns)} patterns, {choice.style}: {scores[source] or 'no answer'}")
            return scores[source]

        return measure


def speedup(results: Sequence[VariantResult]) -> float | None:
    """The geometric mean of the end-to-end speedups; None where a variant failed or is wrong at `LEVEL`."""
    speedups = [result.speedup("e2e") for result in results]
    right = all(r.status == "ok" and r.t_min is not None and r.t_min <= LEVEL for r in results)
    if not results or not right or None in speedups:
        return None
    return math.exp(math.fsum(map(math.log, speedups)) / len(speedups))


def spread(variants: Sequence[Variant], count: int) -> tuple[Variant, ...]:
    """At most `count` of the variants, evenly spaced from the smallest inputs to the largest."""
    ordered = sorted(variants, key=lambda v: (sum(math.prod(i.shape) for i in v.inputs), v.variant_hash))
    if len(ordered) <= count:
        return tuple(ordered)
    last = len(ordered) - 1
    return tuple(ordered[round(n * last / (count - 1))] for n in range(count)) if count > 1 else (ordered[-1],)


def steps(task: Task, choice: Choice) -> Iterator[Choice]:
    """Choices that differ from this one in one respect, what usually matters most first."""
    style, limits = choice.style, choice.style.limits
    gains = task.gains()
    for pattern in sorted(choice.patterns, key=lambda p: gains[p]):
        rest = tuple(p for p in choice.patterns if p != pattern)
        if task.covers(rest):
            yield Choice(rest, style)
    for pattern in gains:
        if pattern not in choice.patterns:
            yield Choice(tuple(sorted((*choice.patterns, pattern))), style)
    if task.longest() < LONG:
        return
    for factor in (2.0, 0.5):
        yield Choice(choice.patterns, replace(style, limits=replace(limits, work=limits.work * factor)))
    for factor in (2.0, 0.5):
        yield Choice(choice.patterns, replace(style, limits=replace(limits, warps=limits.warps * factor)))
    yield Choice(choice.patterns, replace(style, limits=replace(limits, persistent=limits.persistent // 4)))
    yield Choice(choice.patterns, replace(style, general=not style.general))
