"""One attempt as far as it has come: the row of the `trajectories` table that is saved after every step."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter


class Exit(StrEnum):
    """How an attempt ended."""

    RUNNING = "running"  # it has not: it goes on when the run does
    SUBMITTED = "submitted"
    STEP_LIMIT = "step_limit"
    TOKEN_LIMIT = "token_limit"
    COST_LIMIT = "cost_limit"
    TIME_LIMIT = "time_limit"
    NO_CALLS = "no_calls"  # the model talks and calls no tool
    MALFORMED = "malformed"  # it keeps calling tools that do not exist, or with wrong arguments
    LOOP = "loop"  # it keeps making the same call
    REFUSED = "refused"  # the provider will not answer this conversation: too long, filtered
    PROVIDER_FAILED = "provider_failed"  # no answer after all tries


UNFINISHED = (Exit.RUNNING, Exit.PROVIDER_FAILED)
"""Attempts that go on when the run is started again."""


@dataclass
class State:
    """What is known of an attempt. `files`: the pass as the model has it now; `best_files`: the best evaluated one."""

    messages: list[ModelMessage] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    best_files: dict[str, str] = field(default_factory=dict)
    scores: list[float] = field(default_factory=list)  # AS of each evaluation
    steps: int = 0
    tool_calls: int = 0
    failed_calls: int = 0
    rejections: int = 0  # evaluations that an integrity layer refused
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0  # None: the price is not known
    seconds: float = 0.0
    exit: Exit = Exit.RUNNING
    error: str = ""

    @property
    def best(self) -> float | None:
        """The best score so far."""
        return max(self.scores, default=None)

    def to_row(self) -> dict[str, Any]:
        """As columns of the `trajectories` table, without those that say which attempt it is."""
        return {
            "messages": ModelMessagesTypeAdapter.dump_json(self.messages).decode(),
            "draft_files": [{"path": path, "content": text} for path, text in self.files.items()],
            "best_files": [{"path": path, "content": text} for path, text in self.best_files.items()],
            "exit_status": self.exit.value,
            **{name: getattr(self, name) for name in _PLAIN},
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "State":
        """From a row of the table."""
        return cls(
            messages=ModelMessagesTypeAdapter.validate_json(row["messages"]),
            files={file["path"]: file["content"] for file in row["draft_files"]},
            best_files={file["path"]: file["content"] for file in row["best_files"]},
            exit=Exit(row["exit_status"]),
            **{name: row[name] for name in _PLAIN},
        )


_PLAIN = (
    "scores", "steps", "tool_calls", "failed_calls", "rejections", "input_tokens", "output_tokens", "cost_usd",
    "seconds", "error",
)  # fmt: skip
