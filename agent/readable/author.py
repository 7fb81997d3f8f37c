"""The author `readable`: writes what `distill` would replace, where it can be written generally."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent.author import Attempt, Author, Submission
from agent.distill.candidates import Candidate
from agent.distill.lowered_regions import FAILURES, Sketches
from agent.distill.static import MARGIN, Distill
from agent.distill.task_plan import Task
from agent.readable.input_order import in_order
from agent.readable.kernel_text import Unreadable
from agent.readable.module_source import ReadableModule, module_of
from passbench.contract import NAMES_FILE, write_pass_dir
from storage.records import Sample


@dataclass(frozen=True)
class ReadablePass:
    """A pass as files by name, and its modules in order; no files, and the `reason`, where none was written."""

    files: dict[str, str]
    modules: tuple[ReadableModule, ...]
    reason: str = ""


@dataclass
class Readable(Author):
    """Writes one pass for all variants of a sample, or declines. It looks for regions for `seconds` of the processor's
    time. Nothing is measured: what `distill` expects to save time is replaced."""

    name: str = "readable"
    margin: float = MARGIN
    seconds: float = 60.0
    sketches: Sketches = field(default_factory=Sketches, repr=False, compare=False)

    def attempt(self, sample: Sample, directory: Path, attempt: Attempt) -> Submission:
        """A submission for the sample."""
        written = self.write(sample)
        if not written.files:
            return Submission("eager", reason=written.reason)
        write_pass_dir(written.files, directory)
        return Submission("pass", directory)

    def write(self, sample: Sample) -> ReadablePass:
        """A pass whose modules together match in every variant and nowhere else than they should."""
        author = Distill(margin=self.margin, seconds=self.seconds, sketches=self.sketches)
        task = author.task(sample, self.margin)
        wanted = task.likely(self.margin)
        if not wanted:
            return ReadablePass({}, (), "; ".join(task.causes) or "nothing to fuse")
        modules: dict[str, ReadableModule] = {}
        causes = []
        by_pattern = {p: _candidates(task, p) for p in wanted}
        for pattern, found in sorted(by_pattern.items(), key=lambda item: -len(item[1][0].region.ops)):
            cases = [case for candidate in found for case in candidate.cases]
            try:
                made = module_of(cases, self.sketches, [m.name for m in modules.values()])
                modules[pattern] = replace(made, source=in_order(made.source, found[0].region.inputs))
            except (Unreadable, *FAILURES) as error:
                causes.append(str(error))
        if not task.covers(modules):
            return ReadablePass({}, (), "; ".join(dict.fromkeys(causes)))
        files = {f"{m.name}.py": m.source for m in modules.values()}
        files[NAMES_FILE] = json.dumps([m.name for m in modules.values()]) + "\n"
        return ReadablePass(files, tuple(modules.values()))


def _candidates(task: Task, pattern: str) -> Sequence[Candidate]:
    return [c for each in task.graphs for c in each.candidates if c.pattern == pattern]
