"""The author `llm`: attempts by a language model with tools; the best pass that it evaluated is what it submits."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from agent.author import Attempt, Author, Submission
from agent.llm.budget import Budget
from agent.llm.options import LlmOptions
from passbench.contract import write_pass_dir
from storage.errors import PassNetError, installed_by
from storage.records import Sample

if TYPE_CHECKING:
    from pydantic_ai.models import Model


@dataclass
class Llm(Author):
    """`model`: pydantic-ai's id, such as `openai:gpt-5.5` or `anthropic:claude-sonnet-5`, or one of its models."""

    model: "str | Model"
    options: LlmOptions = field(default_factory=LlmOptions)
    name: str = "llm"
    measures: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Raises PassNetError for an unknown model, a missing key or package, and a limit of money without a price."""
        try:
            from agent.llm.provider import check_price, model_of
        except ImportError as error:
            raise PassNetError(f"author llm needs pydantic-ai ({error}): {installed_by('pipeline')}") from error
        self.model_id = self.model if isinstance(self.model, str) else self.model.model_name
        self.budget = Budget(self.options)
        model = model_of(
            self.model, self.options.base_url
        )  # what is wrong with it should show before anything is built
        check_price(model, self.options)

    @property
    def identity(self) -> dict[str, Any]:
        """What decides how attempts go: the model, the limits of an attempt, the prompt."""
        from agent.llm.prompt import SYSTEM

        prompt = hashlib.sha256(SYSTEM.encode()).hexdigest()[:12]
        return {"model": self.model_id, "prompt": prompt, **json.loads(json.dumps(self.options.identity))}

    def begin(self, saved: Iterable[Mapping[str, Any]]) -> None:
        """Start or go on with a run of which these trajectories are saved."""
        self.budget = Budget(self.options)
        self.budget.begin(saved)

    def attempt(self, sample: Sample, directory: Path, attempt: Attempt) -> Submission:
        """Run the attempt, or go on with it. Its best evaluated pass goes into `directory`; if it has none, its last
        one.

        Raises PassNetError where the run must stop: RunLimitReached for its budget, else for the caller to mend.
        """
        from agent.llm.loop import Loop
        from agent.llm.provider import Provider
        from agent.llm.state import UNFINISHED, State

        state = State.from_row(attempt.saved) if attempt.saved is not None else State()

        def save(state: State) -> None:
            attempt.save({"author": self.name, "model": self.model_id, **state.to_row()})

        if state.exit in UNFINISHED:
            with Provider(self.model, self.options, attempt.say) as provider:
                Loop(sample, state, attempt, provider, self.options, self.budget, save).run()
        write_pass_dir(state.best_files or state.files, directory)
        return Submission("pass", directory)
