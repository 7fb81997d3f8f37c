"""Examples that teach to copy: a task whose lines are drawn at random, and the pattern that repeats them.

The first thing that a small decoder gets wrong is the pattern, which is the task's own lines. It sees some 3,000
different ones in demonstrations, and learns those by heart. Here lines of all tasks are put together anew each time,
with inputs and numbers drawn anew, and some operators with names that no task has: a held-out task has operators that
no demonstration shows. Such a graph need not run, and nothing here was checked: it is no demonstration.
"""

import random
import re
from collections.abc import Mapping, Sequence
from keyword import iskeyword
from typing import Any

_LINE = re.compile(r"        (tmp_\d+ = .+|in_\d+ [-+*/]?= .+)")
_INPUT = re.compile(r"in_\d+ (\w+\[[\d, ]*\][^,]*?(?:\[[-\d, ]+\])?(?: \w+)?)(?=, in_|$)")
_NAME = re.compile(r"\b(?:in|tmp)_\d+\b")
_NUMBER = re.compile(r"(?<![\w.])\d{2,4}(?![\w.])")
_OPERATOR = re.compile(r"(?<=\.)[a-z][a-z_0-9]*(?=\(|\.[a-zA-Z_]+\()")
_NAMESPACES = frozenset({"aten", "functional", "nn", "ops"})
_WORD = re.compile(r"[a-z]{2,}")
_NEW_NAMES = 0.25
"""The share of operators whose names are drawn."""


class CopyTasks:
    """Draws a task of at most `most` lines, how its answer begins, which is drawn too, and its pattern."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], rng: random.Random, most: int = 8) -> None:
        tasks = [row["task"] for row in rows]
        self.rng, self.most = rng, most
        self.lines = sorted({line.partition(" = ")[2] for task in tasks for line in _LINE.findall(task)} - {""})
        self.words = sorted({word for line in self.lines for word in _WORD.findall(line)})
        self.starts = [row["answer"].partition("def pattern(")[0] for row in rows if "def pattern(" in row["answer"]]
        self.inputs = sorted({found for task in tasks for found in _INPUT.findall(_first_variant(task))})

    def __call__(self) -> tuple[str, str, str]:
        """A task, its answer up to the pattern, and the pattern."""
        rng, count = self.rng, self.rng.randint(1, self.most)
        known, inputs, lines = [], 0, []
        for number in range(count):
            text = _NUMBER.sub(self._number, _OPERATOR.sub(self._operator, rng.choice(self.lines)))
            places: dict[str, str] = {}
            for name in dict.fromkeys(_NAME.findall(text)):
                if known and rng.random() < 0.7:
                    places[name] = rng.choice(known)
                else:
                    places[name], inputs = f"in_{inputs}", inputs + 1
            lines.append(f"        tmp_{number} = {_NAME.sub(lambda name, of=places: of[name[0]], text)}\n")
            known = [*known, *places.values(), f"tmp_{number}"]
        used = _NAME.findall("".join(line.partition(" = ")[2] for line in lines))
        results = [f"tmp_{n}" for n in range(count) if f"tmp_{n}" not in used]
        names = [f"in_{n}" for n in range(inputs)]
        shapes = ", ".join(f"{name} {_NUMBER.sub(self._number, rng.choice(self.inputs))}" for name in names)
        returned = f"{', '.join(results)}{',' if len(results) == 1 else ''}"
        task = (
            "Task\n\nSource of variants 0:\n```python\nimport torch\n\n\nclass GraphModule(torch.nn.Module):\n"
            f"    def forward({', '.join(['self', *names])}):\n{''.join(lines)}        return ({returned})\n```\n\n"
            f"Inputs by variant:\n0: {shapes}"
        )
        body = "".join(line[4:] for line in lines)
        pattern = f"def pattern({', '.join(names)}):\n{body}    return {', '.join(results)}\n"
        return task, rng.choice(self.starts), pattern

    def _operator(self, found: re.Match[str]) -> str:
        """The operator's name, or one made of pieces of words."""
        if found[0] in _NAMESPACES or self.rng.random() >= _NEW_NAMES:
            return found[0]
        words = (self.rng.choice(self.words) for _ in range(self.rng.randint(1, 3)))
        name = "_".join(word[: self.rng.randint(2, 8)] for word in words)
        return f"{name}_" if iskeyword(name) else name

    def _number(self, found: re.Match[str]) -> str:
        digits = len(found[0])
        return str(self.rng.randrange(10 ** (digits - 1), 10**digits))


def repeats(task: str, answer: str) -> bool:
    """Whether the pattern of an answer has the task's own lines, all and in order, and no other."""
    pattern = answer.partition("\ndef pattern(")[2].partition("\n    return ")[0].splitlines()[1:]
    source = task.partition("    def forward(")[2].partition("\n        return ")[0].splitlines()[1:]
    return [line.strip() for line in pattern] == [line.strip() for line in source]


def _first_variant(task: str) -> str:
    return task.rsplit("\n0: ", 1)[-1].partition("\n")[0]
