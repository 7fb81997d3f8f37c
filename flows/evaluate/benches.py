"""What a run needs of its benches, wherever they are: they take lots and say what became of each."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

T = TypeVar("T")
R = TypeVar("R")

Step = Callable[[Any, T], R]
"""What is done with a lot: `step(bench, lot)`; it travels to other processes."""


@dataclass
class Use:
    """What a device has done: lots finished and lost, seconds at work, and seconds until its process was ready."""

    device: str
    lots: int = 0
    lost: int = 0
    seconds: float = 0.0
    start_seconds: float = 0.0


class Benches(Protocol):
    """Where lots are benchmarked; a context manager. `kind`: "cpu" or "cuda"; `count`: how many at a time."""

    kind: str
    count: int

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def map(self, step: Step, lots: Sequence[T], name: str, *, here: bool = False) -> Iterator[R | None]:
        """`step(bench, lot)` for each lot, as they finish; inside a flow run each is a task run called `name`.

        A lot whose process ended is answered with None. `here`: the step runs in this process, whichever its bench is
        in. Where a step raises, lots that have begun are finished, others never begin, and it is raised.
        """
        ...

    def uses(self) -> list[dict]:
        """What each device has done so far, as `Use`."""
        ...
