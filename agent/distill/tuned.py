"""The offline author where there is a GPU: of the passes that `agent.distill.static` could write, the measured best.

`agent.distill.sample_search` searches a sample, until its time is up. A pass that is wrong, or not clearly faster than
eager, is not submitted.

What a search finds is kept by family and device (`agent.distill.search.found_families`). A search that was killed, or
cut short because an answer was due, goes on from its best so far in a later run. Else a family is searched once.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from agent.author import Attempt, Author, Submission
from agent.distill.eager.order_probe import ProbedOrders
from agent.distill.rounding import Confirms, Rounding, assumed
from agent.distill.sample_search import SampleSearch
from agent.distill.search.best_so_far import BestSoFar
from agent.distill.search.found_families import Best, FamilySearch, FoundFamilies
from agent.distill.search.search_clock import SearchClock
from agent.distill.search.trial import known, writes
from agent.distill.static import Distill, SampleTasks, kept_orders
from agent.distill.task_plan import Task
from agent.distill.written_pass import allowed
from storage.records import Sample

_NOTHING_FASTER = Submission("eager", reason="no pass that was measured is right and faster than eager")


@dataclass
class Tuned(Author):
    """Searches for the best pass of each sample by measuring.

    `seconds` is how long a sample may take, of which all but measuring counts by a quarter, `probes` how many of its
    variants are measured. `reach`: a region that is expected to cost up to so many microseconds a call is still tried.
    `found` has the answers by family.
    `channels_last`: half-type convolutions are tried in channels-last memory, too (`rewrites.channels_last`).
    `compiled`: TorchInductor's own code is tried, too (`agent.distill.inductor`).
    `orders` makes the function that confirms orders of addition on a device; `probed` keeps its answers.
    """

    distill: Distill = field(default_factory=Distill)
    name: str = "distill"
    seconds: float = 60.0
    probes: int = 6
    reach: float = 15.0
    found: dict[str, Best | None] = field(default_factory=dict)
    channels_last: bool = True
    compiled: bool = True
    orders: Callable[..., Confirms] = ProbedOrders
    probed: dict[str, bool] = field(default_factory=dict)
    measures: ClassVar[bool] = True

    @property
    def identity(self) -> Mapping[str, Any]:
        """What decides how attempts go; there is no model."""
        found = {"model": "", "seconds": self.seconds, "probes": self.probes, "reach": self.reach}
        return found | {"channels_last": self.channels_last, "compiled": self.compiled}

    def begin(self, saved: Iterable[Mapping[str, Any]]) -> None:
        """Start a run. The saved trajectories are not needed: searches that were killed are in `attempt.state`."""
        self.found.clear()

    def attempt(self, sample: Sample, directory: Path, attempt: Attempt) -> Submission:
        """The best pass found. Without a GPU: what `distill` writes without measuring."""
        if not attempt.device.startswith("cuda"):
            return self.distill.write(sample, directory)
        return allowed(self._chosen(sample, directory, attempt), directory)

    def _chosen(self, sample: Sample, directory: Path, attempt: Attempt) -> Submission:
        tasks = self.tasks_of(sample)
        task = tasks.task()
        start = tasks.start(task)
        if not writes(task, start):
            return task.write((), start.style, directory)
        if sample.family_hash not in self.found:
            self.found[sample.family_hash] = self._searched(task, sample, attempt)
        best = self.found[sample.family_hash]
        if best is None:
            return _NOTHING_FASTER
        return self._written(best, task, sample, directory, attempt)

    def fallback(self, sample: Sample, directory: Path, attempt: Attempt) -> Submission:
        """What a search has found that was finished before the attempt was ended. The best of another one, if that has
        kernels with eager's bits: others may not have been checked. Else what `distill` writes without measuring, or
        eager's calls as the search has found them faster."""
        earlier = self._families(attempt).load(sample.family_hash)
        best, finished = (earlier.best, earlier.finished) if earlier is not None else (None, False)
        if finished and best is None:
            return _NOTHING_FASTER
        sure = best is not None and best.choice.patterns and min(best.levels.values()) >= Rounding.EXACT
        if not finished and not sure:
            written = self.distill.write(sample, directory, self._confirms(attempt))
            if written.compiler == "pass" or best is None or best.choice.patterns or best.choice.style.compiled:
                return written
        return allowed(self._written(best, self.tasks_of(sample).task(), sample, directory, attempt), directory)

    def _written(self, best: Best, task: Task, sample: Sample, directory: Path, attempt: Attempt) -> Submission:
        """The pass of the best choice; `task` is the sample's where nothing is left to eager."""
        if best.static:
            return self.distill.write(sample, directory, self._confirms(attempt))
        style = best.choice.style
        if style.own_schedule or (style.measured_apart and not style.compiled) or any(best.levels.values()):
            task = self.tasks_of(sample, self._confirms(attempt)).task(best.levels, style.ways)
        return task.write(known(task, best.choice), replace(style, for_others=self._confirms(attempt)), directory)

    def _families(self, attempt: Attempt) -> FoundFamilies:
        kept = attempt.state / "families" if attempt.state is not None else None
        return FoundFamilies(kept, attempt.device, self.identity)

    def _searched(self, task: Task, sample: Sample, attempt: Attempt) -> Best | None:
        """The family's best, by an earlier search if that was finished. Another one goes on from its best."""
        families = self._families(attempt)
        earlier = families.load(sample.family_hash)
        if earlier is not None and earlier.finished:
            attempt.say("this family was searched before")
            return earlier.best
        clock, used = SearchClock(attempt.due), earlier.seconds if earlier is not None else 0.0

        def keep(best: Best | None, finished: bool = False) -> None:
            families.keep(sample.family_hash, FamilySearch(best, used + clock.counted, finished))

        start = earlier.best if earlier is not None else None
        search = SampleSearch(
            self.tasks_of(sample, self._confirms(attempt)),
            attempt,
            clock,
            max(self.seconds - used, 0.0),
            BestSoFar(keep),
            self.probes,
            self.seconds,
            self.channels_last,
            self.compiled,
        )
        best = search.run(task, start)
        keep(best, finished=not clock.late)
        return best

    def tasks_of(self, sample: Sample, confirms: Confirms = assumed) -> SampleTasks:
        """The tasks of a sample in which the search looks."""
        return SampleTasks(self.distill, sample, self.reach, confirms)

    def _confirms(self, attempt: Attempt) -> Confirms:
        return self.orders(attempt.device, attempt.say, kept_orders(attempt), self.probed)
