"""The tools of the agent. Each returns short text that says what to do next; the model reads their docstrings."""

import hashlib
import json
import re
import tempfile
from pathlib import Path

from pydantic import ValidationError
from pydantic_ai.messages import RetryPromptPart, ToolCallPart, ToolReturnPart
from pydantic_ai.tools import Tool, ToolDefinition

from agent.author import Attempt
from agent.llm.feedback import findings_text, results_text
from agent.llm.state import State
from agent.llm.task import describe_sample, describe_variant
from passbench.contract import NAMES_FILE, ContractError, PassFiles, read_pass_dir, write_pass_dir
from passbench.policy.check import check_files
from passbench.score import aggregate_score
from storage.records import Sample

NAMES = ("read_task", "write_file", "edit_file", "view_files", "check", "evaluate", "submit")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,79}\.py")
_LONGEST_FILE = 64_000  # characters
_MOST_FILES = 32
_NOTHING_SCORED = 0.0  # AS where eager fails on every variant


class Tools:
    """The tools of one attempt: they read the sample, change the state's files and ask PassBench."""

    def __init__(self, sample: Sample, state: State, attempt: Attempt) -> None:
        self.sample, self.state, self.attempt = sample, state, attempt
        self.submitted = False
        self._said: dict[str, str] = {}  # what was said about files that have been evaluated
        self._tools = {name: Tool(getattr(self, name), takes_ctx=False) for name in NAMES}
        self.definitions = [tool.tool_def for tool in self._tools.values()]

    def call(self, call: ToolCallPart) -> ToolReturnPart | RetryPromptPart:
        """Run a call; a name or arguments that do not fit are answered with what does."""
        if self.submitted:
            return ToolReturnPart(call.tool_name, "Not run: the pass is submitted.", tool_call_id=call.tool_call_id)
        tool = self._tools.get(call.tool_name)
        if tool is None:
            text = f"there is no tool {call.tool_name[:80]!r}; there are {', '.join(self._tools)}"
            return RetryPromptPart(text, tool_name=call.tool_name, tool_call_id=call.tool_call_id)
        try:
            given = call.args if isinstance(call.args, str) else json.dumps(call.args or {})
            arguments = tool.function_schema.validator.validate_json(given or "{}")
        except ValidationError as error:
            found = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}" for e in error.errors()[:4])
            wanted = ", ".join(tool.tool_def.parameters_json_schema["properties"]) or "none"
            text = f"{call.tool_name}: {found[:400]}. Its arguments are: {wanted}. Call it again."
            return RetryPromptPart(text, tool_name=call.tool_name, tool_call_id=call.tool_call_id)
        return ToolReturnPart(call.tool_name, tool.function(**arguments), tool_call_id=call.tool_call_id)

    def read_task(self, variant: int | None = None) -> str:
        """Read the task again, or one variant in full: source, inputs, where eager's time goes.

        Args:
            variant: the variant's number; leave it out for the whole task.
        """
        if variant is None:
            return describe_sample(self.sample, self.attempt.device)
        if not 0 <= variant < len(self.sample.variants):
            return f"There is no variant {variant}; they are 0 to {len(self.sample.variants) - 1}."
        return describe_variant(self.sample, variant, self.attempt.device)

    def write_file(self, name: str, content: str) -> str:
        """Write a file of the pass, whole. Empty content removes the file.

        Args:
            name: a module such as fuse_add_relu.py, or sorted_output_pass_rule_names.json.
            content: the whole text.
        """
        files = self.state.files
        if name != NAMES_FILE and not _NAME.fullmatch(name):
            return f"{name[:80]!r} cannot be a file of a pass: it is {NAMES_FILE} or NAME.py, without directories."
        if len(content) > _LONGEST_FILE:
            return f"{name} has {len(content)} characters; at most {_LONGEST_FILE} are allowed."
        if not content.strip():
            return f"Removed {name}." if files.pop(name, None) is not None else f"There is no {name}."
        if name not in files and len(files) == _MOST_FILES:
            return f"A pass has at most {_MOST_FILES} files here; remove one first."
        files[name] = content
        return f"Wrote {name}. " + self._missing()

    def edit_file(self, name: str, old: str, new: str) -> str:
        """Replace a piece of a file that stands in it once.

        Args:
            name: the file.
            old: the text to replace, exactly as it stands there.
            new: what to put in its place.
        """
        text = self.state.files.get(name)
        if text is None:
            return f"There is no {name[:80]!r}; there are {', '.join(self.state.files) or 'no files'}."
        found = text.count(old) if old else 0
        if found != 1:
            return f"The old text stands in {name} {found} times; give one that stands there once."
        return self.write_file(name, text.replace(old, new))

    def view_files(self, name: str | None = None) -> str:
        """View the files of the pass.

        Args:
            name: one file; leave it out for all of them.
        """
        files = self.state.files
        shown = files if name is None else {n: t for n, t in files.items() if n == name}
        if not shown:
            return f"There are: {', '.join(files) or 'no files yet'}."
        return "\n".join(f"# {n}\n{t.rstrip()}" for n, t in shown.items())

    def check(self) -> str:
        """Check the pass by the static policy, without running it."""
        with tempfile.TemporaryDirectory(prefix="passnet-llm-") as place:
            try:
                return findings_text(check_files(self._read(place)))
            except ContractError as error:
                return f"{_without(place, error)}\nNext: mend this, then check() again."

    def evaluate(self) -> str:
        """Run the pass through PassBench: matches, correctness, speedups of every variant, and the best so far."""
        state, text = self.state, self._digest()
        if text in self._said:
            return f"Nothing has changed since this evaluation:\n{self._said[text]}"
        with tempfile.TemporaryDirectory(prefix="passnet-llm-") as place:
            try:
                self._read(place)
            except ContractError as error:
                return f"{_without(place, error)}\nNext: mend this, then evaluate() again."
            results = self.attempt.measure(self.sample, Path(place) / "pass")
        score = aggregate_score([r.to_row(run="", author="") for r in results]) or _NOTHING_SCORED
        best, number = state.best, state.scores.index(state.best) + 1 if state.scores else 0
        said = results_text(results, score, best, number)
        if best is None or score > best:
            state.best_files = dict(state.files)
        state.scores.append(score)
        state.rejections += any(r.status == "rejected" for r in results)
        self._said[text] = said
        return said

    def submit(self) -> str:
        """Finish. The best evaluated pass counts; files that have changed since are evaluated first."""
        said = self.evaluate() if self.state.files else "There are no files."
        self.submitted = True
        return f"Submitted.\n{said}"

    def _read(self, place: str) -> PassFiles:
        write_pass_dir(self.state.files, Path(place) / "pass")
        return read_pass_dir(Path(place) / "pass")

    def _digest(self) -> str:
        return hashlib.sha256(json.dumps(self.state.files, sort_keys=True).encode()).hexdigest()

    def _missing(self) -> str:
        if NAMES_FILE not in self.state.files:
            return f"Next: write {NAMES_FILE}."
        if not any(name.endswith(".py") for name in self.state.files):
            return "Next: write the modules that it names."
        return "Next: check() or evaluate()."


def definitions() -> list[ToolDefinition]:
    """What the model is told of the tools."""
    return [Tool(getattr(object.__new__(Tools), name), takes_ctx=False).tool_def for name in NAMES]


def _without(place: str, error: Exception) -> str:
    """The error with names of files instead of paths."""
    return str(error).replace(f"{place}/pass/", "").replace(f"{place}/pass", "the pass")
