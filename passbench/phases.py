"""Where the time of a benchmark goes: seconds by phase, of which the innermost counts."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Phases:
    """`seconds` by name. Time in a phase within another counts for the inner one alone."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner = [0.0]  # seconds of phases within each phase that is under way

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """A phase; it may come up many times."""
        begin = time.perf_counter()
        self._inner.append(0.0)
        try:
            yield
        finally:
            took = time.perf_counter() - begin
            self.seconds[name] = self.seconds.get(name, 0.0) + took - self._inner.pop()
            self._inner[-1] += took
