"""Attempts by scripted models, for the tests of the author `llm`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from agent.author import Attempt
from agent.llm.author import Llm
from agent.llm.options import LlmOptions
from agent.llm.state import State
from passbench.contract import NAMES_FILE
from passbench.result import VariantResult
from storage.records import Sample
from tests.passbench.samples import PASSES, add_relu_sample
from tests.support.llm_server import Reply

SAMPLE = add_relu_sample((3, 40), (5, 7))
QUICK = {"stream": False, "backoff": 0.01, "price": (1.0, 10.0)}


def text_of(name: str) -> str:
    """The module of one of the passes in tests/support/passes."""
    (module,) = (PASSES / name).glob("*.py")
    return module.read_text()


def writes(source: str) -> Reply:
    """An answer that writes a pass of one module and evaluates it."""
    files = [("write_file", {"name": "fuse.py", "content": source})]
    return Reply([*files, ("write_file", {"name": NAMES_FILE, "content": '["fuse"]'}), ("evaluate", {})])


SUBMIT = Reply([("submit", {})])


def scripted(script: Callable[[list[ModelMessage]], Reply]) -> FunctionModel:
    """A model that answers as the script says, without any network."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        reply = script(messages)
        calls = [ToolCallPart(name, given) for name, given in reply.calls]
        return ModelResponse([*([TextPart(reply.text)] if reply.text else []), *calls])

    return FunctionModel(answer, model_name="scripted")


def in_turn(*replies: Reply) -> FunctionModel:
    """A model that gives these answers, by how many the conversation has; then the last again."""
    return scripted(lambda messages: replies[min(_answers(messages), len(replies) - 1)])


def _answers(messages: list[ModelMessage]) -> int:
    return sum(isinstance(message, ModelResponse) for message in messages)


def never(sample: Sample, directory: Path) -> list[VariantResult]:
    """For attempts that never get as far as an evaluation."""
    raise AssertionError("nothing should be evaluated")


@dataclass
class Run:
    """Attempts at one sample by one author, with what they saved."""

    author: Llm
    measure: Callable[[Sample, Path], list[VariantResult]] = never
    sample: Sample = SAMPLE
    rows: list[dict[str, Any]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def attempt(self, place: Path, saved: Mapping[str, Any] | None = None) -> State:
        """Run an attempt to its end."""
        lent = Attempt(1, "cpu", self.measure, lambda row: self.rows.append(dict(row)), saved, self.said.append)
        self.author.attempt(self.sample, place, lent)
        return self.last

    @property
    def last(self) -> State:
        """The state as it was saved last."""
        return State.from_row(self.rows[-1])


def attempt(model: FunctionModel, place: Path, measure=never, **options: Any) -> State:
    """One attempt at the sample by a scripted model."""
    return Run(Llm(model, LlmOptions(**{**QUICK, **options})), measure).attempt(place)


def outputs(state: State) -> list[str]:
    """What the tools said, in order."""
    parts = [part for message in state.messages if message.kind == "request" for part in message.parts]
    return [
        part.content if isinstance(part.content, str) else str(part.content)
        for part in parts
        if part.part_kind in ("tool-return", "retry-prompt")
    ]
