"""What an author is: something that writes a pass for a task, or says which compiler stands in for it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from passbench.result import VariantResult
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
class Attempt:
    """What a flow lends to an author that measures while it writes.

    `measure` runs a pass directory through PassBench, all variants of the sample; `save` keeps the attempt's row of the
    `trajectories` table, and `saved` is that row as an earlier part of the run left it; `say` reports progress.
    """

    number: int
    device: str
    measure: Callable[[Sample, Path], list[VariantResult]]
    save: Callable[[Mapping[str, Any]], None]
    saved: Mapping[str, Any] | None
    say: Callable[[str], None]


@runtime_checkable
class Interactive(Protocol):
    """An author that measures while it writes, may be interrupted, and goes on where it was."""

    name: str

    @property
    def identity(self) -> Mapping[str, Any]:
        """What decides how its attempts go, `model` among it: part of a run's id."""
        ...

    def begin(self, saved: Iterable[Mapping[str, Any]]) -> None:
        """Start or go on with a run of which these trajectories are saved."""
        ...

    def attempt(self, sample: Sample, directory: Path, attempt: Attempt) -> Submission:
        """A submission for the sample; the pass goes into `directory`, which does not exist yet.

        Raises RunLimitReached where the run has used what it may use.
        """
        ...


class RunLimitReached(PassNetError):
    """The run has used its money or its time; what is finished stays, and a higher limit goes on with it."""


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
