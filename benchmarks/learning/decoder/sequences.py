"""The sequences of each epoch: demonstrations with other numbers than before, and examples of copying that are drawn.

`Renewing` has a process of its own write them: it takes seconds of Python, which training would have to wait for.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, Self

from benchmarks.learning.decoder.code_tokens import Text
from benchmarks.learning.decoder.copying import CopyTasks
from benchmarks.learning.decoder.renumbered import renumbered
from benchmarks.learning.decoder.replays import replay_of
from benchmarks.learning.decoder.training import Pair
from passbench.workers.preloaded_forks import forks_with

Row = Mapping[str, Any]
"""A demonstration: its `task` and its `answer`."""

_SHORT, _LONG = 8, 16
"""Lines of an example of copying, at most: of patterns alone, and where most are whole answers."""


@dataclass
class Sequences:
    """The demonstrations as sequences of at most `context` tokens. `copies`: the share of examples of copying.
    `replays`: of so many lines an example is a whole answer that replays them; 0: none is."""

    rows: list[Row]
    text: Text
    context: int
    seed: int = 0
    copies: float = 0.0
    replays: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        most = _LONG if self.replays else _SHORT
        self.copy_tasks = CopyTasks(self.rows, self.rng, most) if self.copies else None

    def as_they_are(self) -> list[Pair]:
        """The sequences of the rows."""
        return self._fitting([(row["task"], row["answer"]) for row in self.rows])

    def renewed(self, further: Sequence[Row] = ()) -> list[Pair]:
        """The sequences with other numbers than before, of these `further` rows, too, from now on."""
        self.rows += further
        pairs = self._fitting([renumbered(row["task"], row["answer"], self.rng) for row in self.rows])
        return pairs + self._drawn(round(len(pairs) * self.copies / (1.0 - self.copies)))

    def _drawn(self, count: int) -> list[Pair]:
        """So many examples of copying. Those that are no whole answers have no end, since an answer goes on behind its
        pattern. What stands before the pattern counts as the task's, since nothing says how it is to be."""
        drawn = [self.copy_tasks() for _ in range(count)]
        whole_answers: list[tuple[str, str]] = []
        if self.replays:
            replays = [replay_of(task, self.replays) for task, _, _ in drawn]
            whole_answers = [(one[0], answer) for one, answer in zip(drawn, replays, strict=True) if answer]
            drawn = [one for one, answer in zip(drawn, replays, strict=True) if not answer]
        begun = self.text.pairs([(task, start) for task, start, _ in drawn])
        whole = self.text.pairs([(task, start + pattern) for task, start, pattern in drawn])
        pairs = [(ids[:-1], len(before) - 1) for (ids, _), (before, _) in zip(whole, begun, strict=True)]
        return self._fitting(whole_answers) + [pair for pair in pairs if len(pair[0]) <= self.context]

    def _fitting(self, texts: list[tuple[str, str]]) -> list[Pair]:
        return [pair for pair in self.text.pairs(texts) if len(pair[0]) <= self.context]


class Renewing:
    """A process that writes the sequences of each next epoch; call it for them. A context manager that ends it.

    `further()` gives the rows that came since it was asked last.
    """

    def __init__(self, sequences: Sequences, further: Callable[[], Sequence[Row]]) -> None:
        self._further = further
        self._process = ProcessPoolExecutor(1, forks_with(__name__), initializer=_begin, initargs=(sequences,))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.shutdown(cancel_futures=True)

    def __call__(self) -> list[Pair]:
        return self._process.submit(_renewed, self._further()).result()


_KEPT: list[Sequences] = []
"""What the process has."""


def _begin(sequences: Sequences) -> None:
    _KEPT.append(sequences)


def _renewed(further: Sequence[Row]) -> list[Pair]:
    return _KEPT[0].renewed(further)
