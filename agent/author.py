"""What an author is: something that writes a pass for a task, or says which compiler stands in for it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from storage.errors import PassNetError
from storage.records import Sample


@dataclass(frozen=True)
class Submission:
    """What an author hands in for one sample.

    `compiler` is what PassBench runs: "pass" with the directory `pass_dir`, or another compiler by name. An author
    that finds nothing worth replacing declines: `compiler` is "eager" and `reason` says why.
    """

    compiler: str
    pass_dir: Path | None = None
    reason: str = ""

    @property
    def declined(self) -> bool:
        """Whether the author wrote nothing and leaves the sample to eager."""
        return self.compiler == "eager" and bool(self.reason)


class Author(Protocol):
    """Writes passes. A further author is a file with such a class and a line in `agent/registry.py`."""

    name: str

    def write(self, sample: Sample, directory: Path) -> Submission:
        """A submission for the sample; the pass, if there is one, goes into `directory`, which does not exist yet."""
        ...


@dataclass(frozen=True)
class Baseline:
    """An author that writes nothing and names a compiler."""

    name: str
    compiler: str

    def write(self, sample: Sample, directory: Path) -> Submission:
        """The compiler, whatever the sample."""
        return Submission(self.compiler)


AuthorFactory = Callable[[], Author]


class UnknownAuthor(PassNetError):
    """A name that no author has."""
