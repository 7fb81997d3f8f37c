"""What a whole run has used of its money and time, over all attempts and earlier parts of the run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from agent.author import RunLimitReached
from agent.llm.options import LlmOptions


@dataclass
class Budget:
    """Money and time used by all attempts of a run. Attempts in threads share it. `answers` are the provider's so far,
    `answered` says whether this part of the run has had one."""

    options: LlmOptions
    cost_usd: float = 0.0
    seconds: float = 0.0
    answers: int = 0
    answered: bool = False
    _lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    def begin(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Count what attempts of earlier parts of the run have used, from their rows of the `trajectories` table."""
        for row in rows:
            self.cost_usd += row["cost_usd"] or 0.0
            self.seconds += row["seconds"]
            self.answers += row["steps"]

    def add(self, cost_usd: float) -> None:
        """One answer, and what it cost."""
        with self._lock:
            self.cost_usd += cost_usd
            self.answers += 1
            self.answered = True

    def add_seconds(self, seconds: float) -> None:
        """Time that an attempt has taken."""
        with self._lock:
            self.seconds += seconds

    def check(self) -> None:
        """Raises RunLimitReached where no further call may be made."""
        cost, seconds = self.options.run_cost_usd, self.options.run_seconds
        if cost is not None and self.cost_usd >= cost:
            raise RunLimitReached(f"the run has used ${self.cost_usd:.2f} of ${cost:.2f}: raise the limit to go on")
        if seconds is not None and self.seconds >= seconds:
            raise RunLimitReached(f"the run has used {self.seconds:.0f} of {seconds:.0f} s: raise the limit to go on")
