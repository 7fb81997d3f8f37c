"""The offline author: TorchInductor's kernels for the fusible parts of a task, written out as a readable pass.

Every variant is cut into regions that need no library call. A region is lowered by itself and its kernels are written
as Triton source; regions with the same pattern share a module, whose wrapper picks a plan by its inputs. No time is
measured here: which regions are worth a kernel is what `agent.distill.cost` expects. `agent.distill.tuned` measures.
Where there is a GPU, the orders in which eager adds are compared with its own, once each.
"""

import functools
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from agent.author import Attempt, Author, Submission
from agent.distill.candidates import Options
from agent.distill.eager.order_probe import ProbedOrders
from agent.distill.lowered_regions import Sketches
from agent.distill.rewrites.sample_graphs import FloatDtypes, float_dtypes
from agent.distill.rounding import Confirms, Rounding, assumed
from agent.distill.search.found_families import SearchChoice
from agent.distill.search.neighbours import by_lanes, in_cuda_graphs
from agent.distill.source.style import Style
from agent.distill.task_plan import Task
from agent.distill.ways import PLAIN, Ways
from agent.distill.written_pass import allowed
from storage.records import Sample

MARGIN = 1.0
"""Microseconds a call that a region must be expected to save."""


@dataclass
class Distill(Author):
    """Writes one pass for all variants of a sample, or declines if none is expected to be faster.

    It looks for regions for `seconds` of the processor's time. What it writes so does not depend on other processes.
    Kernels have eager's bits unless `rounding` asks for less: a last bit is amplified by a library call, by a half type
    that is computed on, by large numbers that cancel, and nothing is measured that would show it. `orders` makes the
    function that confirms orders of addition on a GPU; `probed` keeps its answers.
    """

    name: str = "distill"
    margin: float = MARGIN
    style: Style = field(default_factory=Style)
    seconds: float = 60.0
    rounding: Rounding = Rounding.EXACT
    sketches: Sketches = field(default_factory=Sketches, repr=False, compare=False)
    orders: Callable[..., Confirms] = field(default=ProbedOrders, repr=False, compare=False)
    probed: dict[str, bool] = field(default_factory=dict, repr=False, compare=False)

    def attempt(self, sample: Sample, directory: Path, attempt: Attempt) -> Submission:
        """As `write`, with the orders of addition that are eager's on the attempt's device, if that is a GPU."""
        if not attempt.device.startswith("cuda"):
            return self.write(sample, directory)
        return self.write(
            sample, directory, self.orders(attempt.device, attempt.say, kept_orders(attempt), self.probed)
        )

    def write(self, sample: Sample, directory: Path, confirms: Confirms = assumed) -> Submission:
        """A pass for all variants of the sample, or the reason why there is none.

        A variant without a match scores as a failure, so the sample is declined unless every variant has one. It is
        declined, too, if calls are not expected to become faster. `confirms` says which orders of addition are eager's.
        """
        task, choice = self.choice(sample, confirms)
        style = replace(choice.style, for_others=confirms)
        return allowed(task.write(choice.patterns, style, directory), directory)

    def choice(self, sample: Sample, confirms: Confirms = assumed) -> tuple[Task, SearchChoice]:
        """What `write` writes of which task. There are no patterns where it declines."""
        levels = dict.fromkeys(float_dtypes(sample.variants).values(), self.rounding)
        task = self.task(sample, self.margin, levels, confirms)
        return task, SearchChoice(tuple(sorted(task.sure(self.margin))), by_lanes(task, self.style))

    def task(
        self,
        sample: Sample,
        margin: float,
        rounding: Mapping[FloatDtypes, Rounding] | None = None,
        confirms: Confirms = assumed,
        whole: bool = False,
        ways: Ways = PLAIN,
    ) -> Task:
        """The sample with its regions that might save `margin` microseconds.

        `rounding` says, by the floating dtypes of a graph's variants, which ops are left to eager; by default none.
        `confirms` says which orders of addition are eager's. `whole`: also graphs that could be replaced as a whole.
        """
        deadline = time.thread_time() + self.seconds
        options = Options(margin, deadline, Rounding.ANY, confirms, ways)
        sketches = self.sketches.with_products if ways.products else self.sketches
        return Task.of(sample, options, sketches, rounding, whole)


@dataclass(frozen=True)
class SampleTasks:
    """A sample as a search has `distill` plan it. A region that is expected to cost up to `reach` microseconds a call
    is still in its tasks. `confirms` says whether an order of addition is the device's."""

    distill: Distill
    sample: Sample
    reach: float
    confirms: Confirms

    def task(
        self,
        levels: Mapping[FloatDtypes, Rounding] | None = None,
        ways: Ways = PLAIN,
        left: Callable[[], float] = lambda: math.inf,
    ) -> Task:
        """The sample's task; regions are looked for as long as there are seconds `left`, and always with `biases`."""
        distill = replace(self.distill, seconds=min(self.distill.seconds, max(0.0, left())))
        ways = replace(ways, biases=True)
        return distill.task(self.sample, -self.reach, levels, self.confirms, whole=True, ways=ways)

    def others(
        self, levels: Mapping[FloatDtypes, Rounding], left: Callable[[], float], *, channels_last: bool
    ) -> dict[str, Callable[[], Task | None]]:
        """What makes the same task in other ways, once each: with TorchInductor's own schedule, with regions joined,
        and in channels-last memory, None unless that is asked for. By the names that a `SearchTrial` has for them."""
        own = functools.cache(partial(self.task, levels, Ways(own_schedule=True), left))
        last = functools.cache(partial(self.task, levels, Ways(channels_last=True), left))
        joined = functools.cache(partial(self.task, levels, Ways(joined=True), left))
        return {"own_schedule": own, "joined": joined, "channels_last": last if channels_last else lambda: None}

    def start(self, task: Task, captured: bool = False) -> SearchChoice:
        """The choice that is expected to be best: whole graphs if they are to be `captured`, or have no regions."""
        likely = task.likely_on_device if captured else task.likely
        patterns = tuple(sorted(likely(self.distill.margin) or task.likely(-math.inf)))
        style = by_lanes(task, self.distill.style)
        if task.any_whole and (captured or not patterns):
            return in_cuda_graphs(task, patterns, style)
        return SearchChoice(patterns, style)


def kept_orders(attempt: Attempt) -> Path | None:
    """Where it is kept which orders of addition are eager's; None where nothing is kept."""
    return attempt.state / "sum_orders" if attempt.state is not None else None
