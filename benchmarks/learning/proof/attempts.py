"""Sampled answers to the same tasks, judged beside all else, one attempt after another, while there is time."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any

from benchmarks.learning.judge import Verdict
from passbench.score import pass_at_k


class Attempts:
    """Attempts are an answer to each task. Those of the latest point are judged first.

    `judged(name, answers)` gives verdicts. It is called in `thread`, where other jobs come in between. `note` keeps
    pass@k of a point. No attempt is begun that would not be judged at `end` (on the clock of `time.monotonic`) if it
    took as long as the longest one before.
    """

    def __init__(
        self,
        thread: ThreadPoolExecutor,
        judged: Callable[[str, Sequence[str]], Sequence[Verdict]],
        note: Callable[[dict[str, Any]], None],
        end: float,
    ) -> None:
        self._thread, self._judged, self._note, self._end = thread, judged, note, end
        self._lock = Lock()
        self._waiting: list[tuple[str, Sequence[str]]] = []
        self._verdicts: dict[str, list[Sequence[Verdict]]] = {}
        self._running: Future[None] | None = None
        self._longest = 0.0

    def add(self, point: str, attempts: Sequence[Sequence[str]]) -> None:
        """Have these judged before those that wait."""
        with self._lock:
            self._waiting[:0] = [(point, attempt) for attempt in attempts]
            if self._running is None:
                self._running = self._thread.submit(self._judge_one)

    def finish(self) -> None:
        """Wait until all are judged that there is time for. Raises what judging has raised."""
        while (running := self._running) is not None:
            running.result()

    def _judge_one(self) -> None:
        begin = time.monotonic()
        with self._lock:
            if not self._waiting or begin + self._longest > self._end:
                self._running = None
                return
            point, answers = self._waiting.pop(0)
        attempts = self._verdicts.setdefault(point, [])
        attempts.append(self._judged(f"sampled {point}", answers))
        self._note({f"pass_at_k {point}": pass_at(attempts)})
        self._longest = max(self._longest, time.monotonic() - begin)
        with self._lock:
            self._running = self._thread.submit(self._judge_one)


def pass_at(attempts: Sequence[Sequence[Verdict]]) -> dict[str, float]:
    """pass@1 and pass@k over tasks, of k attempts at each; and the share of tasks at which the first attempt that the
    policy allows is right."""
    count = len(attempts)
    of_tasks = list(zip(*attempts, strict=True))
    right = [sum(v.right for v in of_task) for of_task in of_tasks]
    found = {f"pass@{k}": sum(pass_at_k(count, n, k) for n in right) / max(1, len(right)) for k in sorted({1, count})}
    first = [next((v.right for v in of_task if v.allowed), False) for of_task in of_tasks]
    return found | {"first allowed": sum(first) / max(1, len(first)), "attempts": count}
