"""An author of passes that are written ahead: it hands in what is there."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.ahead.author_pool import Answers
from agent.author import Attempt, Author, Submission
from storage.errors import PassNetError
from storage.records import Sample


@dataclass(frozen=True)
class WrittenAhead(Author):
    """Hands in what `author` has answered, under its name. Only samples with an answer may be asked for."""

    author: Author
    answers: Answers

    @property
    def name(self) -> str:
        """The author's."""
        return self.author.name

    @property
    def identity(self) -> Mapping[str, Any]:
        """The author's, and that it has measured by itself."""
        return {**self.author.identity, "measured": "ahead"}

    def attempt(self, sample: Sample, directory: Path, attempt: Attempt) -> Submission:
        """The answer, a pass copied to `directory`. Raises PassNetError where there is no answer."""
        answer = self.answers.of(sample)
        if answer is None:
            raise PassNetError(f"{self.name} has not answered {sample.sample}")
        if answer.pass_dir is None:
            return answer
        shutil.copytree(answer.pass_dir, directory)
        return Submission("pass", directory)
