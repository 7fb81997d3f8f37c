"""How long a search has gone on: measuring counts fully, lowering and writing passes by a quarter."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

OTHER = 0.25
"""What a second counts that is not spent on measuring. A sample of many library calls takes 5 to 16 s of processor time
to lower and write, and was measured once to five times in 4 s: that decided what it got, not what passes there were
(`benchmarks/passbench/h100_table`)."""


@dataclass
class SearchClock:
    """A call returns the seconds that count, from the beginning on."""

    began: float = field(default_factory=time.monotonic)
    measured: float = 0.0

    def __call__(self) -> float:
        return self.measured + OTHER * (time.monotonic() - self.began - self.measured)

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """What is done in this context is measuring."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.measured += time.monotonic() - begin
