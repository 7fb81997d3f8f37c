"""`distill` and `distill-static` in one go: both lower the same regions, which takes most of the time."""

import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.ahead.author_pool import Answers
from agent.author import Attempt, Author, Submission
from agent.distill.tuned import Tuned
from storage.records import Sample


@dataclass
class StaticToo(Author):
    """Answers what `tuned` answers, and keeps in `static` what its `distill` writes without a clock."""

    tuned: Tuned
    static: Answers
    name: str = "distill"

    def begin(self, saved: Iterable[Mapping[str, Any]]) -> None:
        """As `tuned`."""
        self.tuned.begin(saved)

    def attempt(self, sample: Sample, directory: Path, attempt: Attempt) -> Submission:
        """The answer of `tuned`."""
        if self.static.of(sample) is None:
            begin, place = time.monotonic(), self.static.place(sample)
            shutil.rmtree(place, ignore_errors=True)
            self.static.keep(sample, self.tuned.distill.attempt(sample, place, attempt), time.monotonic() - begin)
        return self.tuned.attempt(sample, directory, attempt)

    def fallback(self, sample: Sample, directory: Path, attempt: Attempt) -> Submission | None:
        """That of `tuned`."""
        return self.tuned.fallback(sample, directory, attempt)
