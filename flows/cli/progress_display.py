"""Progress on the screen: bars with what is left where there is a terminal, lines where there is none."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flows.progress import Progress

_LONGEST = 48
"""Characters of the last piece of work that a bar shows."""


@contextmanager
def progress_shown() -> Iterator[None]:
    """Inside the block a run's stages (`flows.progress`) are bars on standard error, if it is a terminal.

    A stage is a bar with what is done, what came of the last piece, and the time that is left of it; lines of the log
    stand above the bars. Elsewhere each event is a line of the log, as without this.
    """
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.fields[place]:>5}"), TextColumn("{task.description}"), BarColumn(24), MofNCompleteColumn(),
        TimeElapsedColumn(), TextColumn("{task.fields[left]}"), TextColumn("{task.fields[last]}", style="dim"),
    )  # fmt: skip
    with Bars(*columns, console=console) as bars, _log_to_the_screen():
        from flows.progress import listening

        with listening(_Listener(bars)):
            yield


class _Listener:
    """Keeps a bar for each stage."""

    def __init__(self, bars: object) -> None:
        self._bars, self._tasks = bars, {}

    def __call__(self, event: "Progress") -> None:
        """Show an event."""
        key = event.stage, event.number, event.of
        if key not in self._tasks:
            place = f"{event.number}/{event.of}" if event.of > 1 else ""
            self._tasks[key] = self._bars.add_task(event.stage, total=event.total, place=place, left="", last="")
        if event.level > logging.INFO:
            self._bars.console.print(event.line, markup=False, highlight=False)
        self._bars.update(
            self._tasks[key],
            completed=event.done,
            total=event.total,
            left="done" if event.done >= event.total else event.left,
            last="" if event.done >= event.total else event.text[:_LONGEST],
        )


@contextmanager
def _log_to_the_screen() -> Iterator[None]:
    """Lines of the log go through what `rich` has put in the place of standard error, above the bars."""
    handlers = [h for h in logging.getLogger("passnet").handlers if isinstance(h, logging.StreamHandler)]
    before = [handler.setStream(sys.stderr) for handler in handlers]
    try:
        yield
    finally:
        for handler, stream in zip(handlers, before, strict=True):
            if stream is not None:
                handler.setStream(stream)
