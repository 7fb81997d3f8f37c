"""What an author is: it takes a sample and hands in a pass, or names the compiler that stands in for one."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

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


class SeenInDraws(NamedTuple):
    """What draws have shown of a pass in one variant: the `level` at which it is right in all of them, None at none,
    and how many `draws` there were. `shares` has of each draw the largest share of what is allowed at t = -5 that a
    difference takes; it is empty where outputs are in half precision, or nobody asked. `lacked_memory`: the GPU had no
    memory for draws, so that nothing is known of the variant."""

    level: int | None
    draws: int
    shares: tuple[float, ...] = ()
    lacked_memory: bool = False


@dataclass(frozen=True)
class Attempt:
    """What a run lends to an author for one attempt at one sample.

    `number` counts from 1. `device` is the device's name, such as "cuda:0". `measure` runs a pass directory through
    PassBench and returns one result per variant of the sample that it is given. `save` keeps the attempt's row of the
    `trajectories` table; `saved` is that row as an earlier, interrupted part of the run left it. `say` reports
    progress. `state` is a directory, which may not exist yet, for what the author finds out and wants to know in later
    runs; None where nothing is kept. Several processes may use it at a time. `check` compares a pass with eager on so
    many draws, for so many seconds at most, and says of each variant what they have shown; None where `measure` alone
    compares. `waited` tells how many seconds both have waited so far for others, such as for a turn of the GPU. An
    answer is `due` at this moment (`time.monotonic`); some time later the attempt is ended.
    """

    number: int
    device: str
    measure: Callable[[Sample, Path], list[VariantResult]]
    save: Callable[[Mapping[str, Any]], None]
    saved: Mapping[str, Any] | None
    say: Callable[[str], None]
    state: Path | None = None
    check: Callable[[Sample, Path, int, float], list[SeenInDraws]] | None = None
    waited: Callable[[], float] = lambda: 0.0
    due: float = math.inf


class Author(ABC):
    """Writes passes. A further author is a file with such a class and a line in `agent/registry.py`.

    `name` is what the command line and the results call it. `measures` says whether attempts measure passes: a run then
    works on one sample after another, instead of compiling the passes of several samples at a time.
    """

    name: str
    measures: ClassVar[bool] = False

    @property
    def identity(self) -> Mapping[str, Any]:
        """What decides how attempts go, beside the name: it becomes part of a run's id. `model` is the language model
        that is asked; it is absent where there is none."""
        return {}

    @property
    def model_name(self) -> str:
        """The language model that is asked; empty for none."""
        return self.identity.get("model", "")

    def begin(self, saved: Iterable[Mapping[str, Any]]) -> None:  # noqa: B027 - most authors have nothing to prepare
        """Start or go on with a run; `saved` are the rows of its trajectories that an earlier part of it left."""

    @abstractmethod
    def attempt(self, sample: Sample, directory: Path, attempt: Attempt) -> Submission:
        """A submission for the sample; the pass, if there is one, goes into `directory`, which does not exist yet.

        Raises RunLimitReached where the run has used what it may use, another PassNetError where it cannot go on.
        """

    def fallback(self, sample: Sample, directory: Path, attempt: Attempt) -> Submission | None:
        """A submission where an attempt was ended from outside, for its time or by a pass that broke the process; None
        where there is nothing to hand in. It must not take long, and measures nothing."""
        return None


class RunLimitReached(PassNetError):
    """The run has used its money or its time; what is finished stays, and a higher limit goes on with it."""


class UnknownAuthor(PassNetError):
    """A name that no author has."""


@dataclass(frozen=True)
class Baseline(Author):
    """An author that writes nothing and names a compiler."""

    name: str
    compiler: str

    def attempt(self, sample: Sample, directory: Path, attempt: Attempt) -> Submission:
        """The compiler, whatever the sample."""
        return Submission(self.compiler)


@dataclass(frozen=True)
class ReadyPasses(Author):
    """Hands in passes that are there already: the pass for sample S is `directory`/S."""

    directory: Path
    name: str = "ready"

    @property
    def identity(self) -> Mapping[str, Any]:
        """The directory: other passes are another run."""
        return {"passes": str(self.directory.resolve())}

    def attempt(self, sample: Sample, directory: Path, attempt: Attempt) -> Submission:
        """The sample's pass; declines where there is none."""
        found = self.directory / sample.sample
        if not found.is_dir():
            return Submission("eager", reason=f"{self.directory} has no pass for this sample")
        return Submission("pass", found)
