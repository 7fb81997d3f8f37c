"""How long a search has gone on: measuring counts fully, all else by a quarter, such as lowering, writing passes and
waiting for other processes."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

OTHER = 0.25
"""What a second counts that is not spent on measuring. A sample of many library calls takes 5 to 16 s of processor time
to lower and write, and was measured once to five times in 4 s: that decided what it got, not what passes there were
(`benchmarks/passbench/h100_table`)."""


@dataclass
class SearchClock:
    """A call returns the seconds that count, from the beginning on, and infinity when it is `late`: an answer was `due`
    before (`time.monotonic`)."""

    due: float = math.inf
    began: float = field(default_factory=time.monotonic)
    measured: float = 0.0

    def __call__(self) -> float:
        return math.inf if self.late else self.counted

    @property
    def counted(self) -> float:
        """The seconds that count."""
        return self.measured + OTHER * (time.monotonic() - self.began - self.measured)

    @property
    def late(self) -> bool:
        """Whether the search has to come to its end, whatever counts."""
        return time.monotonic() > self.due

    @contextmanager
    def measuring(self, waited: Callable[[], float] = lambda: 0.0) -> Iterator[None]:
        """What is done in this context is measuring, but for the seconds that are added to what it has `waited`."""
        begin, before = time.monotonic(), waited()
        try:
            yield
        finally:
            self.measured += max(0.0, time.monotonic() - begin - (waited() - before))
