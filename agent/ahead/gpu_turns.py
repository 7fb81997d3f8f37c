"""Who may use a GPU: one benchmark, and authors that measure briefly. Never two of them at a time that take times.

Authors go first: a benchmark waits until no author wants the GPU. Without that it would take its next turn before
another process has noticed that the last one is over.
"""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_NOTICE = 0.002
"""Seconds that a benchmark leaves between two of its turns, so that authors notice the end of the first."""


@dataclass(frozen=True)
class GpuTurns:
    """Turns on one GPU, among processes that are given the same directory. It must exist."""

    directory: Path

    @contextmanager
    def author(self) -> Iterator[None]:
        """A turn of one of several authors."""
        with locked(self.directory / "authors.lock", fcntl.LOCK_SH), locked(self.directory / "gpu.lock"):
            yield

    @contextmanager
    def untimed(self) -> Iterator[None]:
        """A turn of an author that takes no times, together with others that take none."""
        with locked(self.directory / "authors.lock", fcntl.LOCK_SH), locked(self.directory / "gpu.lock", fcntl.LOCK_SH):
            yield

    @contextmanager
    def benchmark(self) -> Iterator[None]:
        """A turn of the benchmark; it begins when no author waits."""
        with locked(self.directory / "authors.lock"):
            yield
        time.sleep(_NOTICE)


@contextmanager
def locked(path: Path, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Hold a lock on a file, waiting for whoever holds it; `how` is one of fcntl's."""
    with path.open("w") as file:
        fcntl.flock(file, how)
        yield
