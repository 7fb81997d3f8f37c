"""Answers that a task's own text gives: eager's calls, replayed as one CUDA graph.

A small decoder copies long before it writes kernels: its kernels lose the thread after three or four operations. For a
graph of more operations there is a pass without kernels that is often faster than eager. Its pattern repeats the task's
lines, and so does the function that `passbench.launch.captured` replays, which also lets go of each result behind its
last use. `readable` writes it where kernels round otherwise than eager, and `replay_of` writes the same from the text.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from benchmarks.learning.decoder.code_tokens import Text

_SOURCE = re.compile(r"    def forward\(self, (.*)\):\n((?:        .+\n)+?)        return \(?([\w, ]*?),?\)?\n```")
_NAME = re.compile(r"\b(?:in|tmp)_\d+\b")
_NO_REPLAY = re.compile(
    r"_\(|_\.\w+\(|\w [-+*/@|&^%]= |\bout=|_\d+\[.*\] = |\[\[|rand|dropout\(\w+, [\d.]+, True|bernoulli|normal\("
    r"|multinomial|\((?:in_\d+)(?:, [^()]*)?, (?:inplace=)?True\)|\.item\(|\.tolist\("
)
"""Lines that write in place, draw random numbers or read values on the host."""
_VIEWS = (
    "view|reshape|t|transpose|permute|unsqueeze|squeeze|expand|expand_as|view_as|chunk|split|unbind|narrow|select|"
    "slice|detach|alias|flatten|unflatten|swapaxes|movedim|_unsafe_view|contiguous|to|float|type_as|dropout"
)
_VIEW = re.compile(
    rf"(tmp_\d+) = (?:(\w+)(?:\[|\.(?:{_VIEWS})\()|"
    rf"torch\.(?:ops\.aten\.|nn\.functional\.)?(?:{_VIEWS})(?:\.\w+)?\((\w+))"
)
"""A line whose result may be in the memory of what it reads."""
_DEVICE = 'torch.device("cuda")'
_WITH_KERNELS = "`fuse.py`:\n```python\nimport torch\nimport triton\n"
_ANSWER = """\
`fuse.py`:
```python
import torch

from passbench.launch import captured


def pattern({inputs}):
{pattern}    return {results}


def replacement_args({inputs}):
    return ({inputs}{comma})


def steps({inputs}):
{steps}    return {results}


@torch.fx.wrap
def fused({inputs}):
    return captured(steps, {inputs})


def replacement_func():
    return fused
```

`sorted_output_pass_rule_names.json`: ["fuse"]"""


def with_replays(row: Mapping[str, Any], least: int) -> list[Mapping[str, Any]]:
    """The demonstration with a replay for its answer, where its task has at least `least` lines and there is one, and
    where its own answer has kernels alone the demonstration, too. Otherwise the demonstration."""
    answer = replay_of(row["task"], least)
    if answer is None:
        return [row]
    return [{**row, "answer": answer}, *([row] if _of_kernels(row["answer"]) else [])]


@dataclass(frozen=True)
class Begins:
    """The tokens with which answers begin that `replay`, and those that have `kernels` alone: who writes them first has
    chosen which of both a decoder goes on with."""

    replay: list[int]
    kernels: list[int]

    @classmethod
    def of(cls, answers: Sequence[str], text: Text) -> "Begins":
        """Those that these answers have in common."""
        replays = [one for one in answers if _ANSWER.startswith(one.partition("def pattern(")[0])]
        kernels = [one for one in answers if _of_kernels(one)]
        of_each = (text.tokenizer.encode_batch_fast(each) for each in (replays, kernels))
        return cls(*(_in_common([one.ids for one in found]) for found in of_each))


def _in_common(sequences: Sequence[Sequence[int]]) -> list[int]:
    """What all of these begin with."""
    return [each[0] for each in takewhile(lambda each: len({*each}) == 1, zip(*sequences, strict=False))]


def _of_kernels(answer: str) -> bool:
    return answer.startswith(_WITH_KERNELS) and "captured(" not in answer


def replay_of(task: str, least: int) -> str | None:
    """The answer that replays a task's lines; None for fewer than `least` lines, and where replaying would not do what
    eager does: lines that write in place or draw random numbers, inputs that are returned, several sources."""
    found = _SOURCE.findall(task)
    if len(found) != 1:
        return None
    inputs, body, results = found[0]
    lines = [line.strip() for line in body.splitlines()]
    returned = _NAME.findall(results)
    if len(lines) < least or _NO_REPLAY.search(body) or _of_inputs(inputs.split(", "), lines) & set(returned):
        return None
    return _ANSWER.format(
        inputs=inputs,
        comma="" if ", " in inputs else ",",
        results=results,
        pattern="".join(f"    {line}\n" for line in lines),
        steps="".join(f"    {line}\n" for line in _freed(lines, returned)).replace(
            _DEVICE, f"{inputs.partition(', ')[0]}.device"
        ),
    )


def _of_inputs(inputs: list[str], lines: list[str]) -> set[str]:
    """The inputs, and what may be in their memory."""
    found = set(inputs)
    for line in lines:
        view = _VIEW.match(line)
        if view and (view[2] or view[3]) in found:
            found.add(view[1])
    return found


def _freed(lines: list[str], returned: list[str]) -> list[str]:
    """The lines, and behind the last use of each result that it is let go of."""
    last = {name: number for number, line in enumerate(lines) for name in _NAME.findall(line)}
    result = []
    for number, line in enumerate(lines):
        over = {name for name in _NAME.findall(line) if last[name] == number and name.startswith("tmp_")}
        result += [line, *([f"del {', '.join(sorted(over - {*returned}))}"] if over - {*returned} else [])]
    return result
