"""How far a run is: events of its stages, and who listens to them.

A stage makes a `RunStage` and calls `advance` when a piece of its work is done. Each call is an event, a `Progress`,
which goes to the listeners: by default one line of the log; inside `listening(...)` what is given there, such as a bar
on a terminal. In a flow run the run's page has a bar too.

    stage = RunStage("vary", total=80)
    for shard in shards:
        ...
        stage.advance(f"{rows} rows")
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from flows.artifacts import progress_of
from flows.steps import say


@dataclass(frozen=True)
class Progress:
    """An event: `done` of `total` pieces of work of a stage are finished; `text` says what came of the last one.

    The first event of a stage has what an earlier run left done, mostly 0; the last one has `done` equal to `total`.
    `seconds_left` is the estimate for the rest of this stage from the time that the work so far took; None before
    anything is done. The stage is number `number` of `of` in its run, counted from 1. `level` is that of `logging`.
    """

    stage: str
    done: int
    total: int
    text: str = ""
    seconds_left: float | None = None
    number: int = 1
    of: int = 1
    level: int = logging.INFO

    @property
    def line(self) -> str:
        """The event as one line: `vary 12/80: 300 rows, 2.1 s; about 45 s left`."""
        said = f": {self.text}" if self.text else ""
        return "; ".join(filter(None, (f"{self.stage} {self.done}/{self.total}{said}", self.left)))

    @property
    def left(self) -> str:
        """What is left of the stage in words: `about 45 s left`; empty before that is known, and at the end."""
        return f"about {_duration(self.seconds_left)} left" if self.seconds_left else ""


Listener = Callable[[Progress], None]


def as_line(event: Progress) -> None:
    """Log an event as one line, as `say` does."""
    say(event.line, event.level)


_LISTENERS: ContextVar[tuple[Listener, ...]] = ContextVar("listeners", default=(as_line,))


@contextmanager
def listening(*listeners: Listener) -> Iterator[None]:
    """Inside the block events go to these listeners, and no longer to the log. A thread that a block starts has to be
    run in a copy of its context (`contextvars.copy_context().run`) for that."""
    token = _LISTENERS.set(listeners)
    try:
        yield
    finally:
        _LISTENERS.reset(token)


class RunStage:
    """A stage of a run, from its first event to its last."""

    def __init__(
        self, name: str, total: int, *, done: int = 0, work: float | None = None, number: int = 1, of: int = 1
    ) -> None:
        """`done` of `total` pieces are done already. `work` is the size of the others together, in the unit of
        `advance`'s `work`; by default each counts 1."""
        self.name, self.total, self.number, self.of = name, total, number, of
        self._done, self._worked = done, 0.0
        self._work = float(total - done if work is None else work)
        self._begun = time.monotonic()
        self._page = progress_of(name) if total > done else None
        self._tell("", logging.INFO)

    @property
    def done(self) -> int:
        """Pieces that are done."""
        return self._done

    def advance(self, text: str = "", work: float = 1.0, level: int = logging.INFO) -> None:
        """One more piece is done; `work` is its size."""
        self._done += 1
        self._worked += work
        self._tell(text, level)
        if self._page:
            self._page(100 * self._done / self.total)

    def _tell(self, text: str, level: int) -> None:
        left = None
        if self._worked:
            left = (time.monotonic() - self._begun) * max(0.0, self._work - self._worked) / self._worked
        event = Progress(self.name, self._done, self.total, text, left, self.number, self.of, level)
        for listener in _LISTENERS.get():
            listener(event)


def _duration(seconds: float) -> str:
    """`45 s`, `3 min`, `1.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
