"""Inputs of a module numbered as in the task: `in_0` of the task is `in_0` of the pattern, or the first that it has."""

import re
from collections.abc import Sequence

_INPUT = re.compile(r"\bin_(\d+)")
_LIST = re.compile(r"in_\d+(?:_ptr|\.contiguous\(\))?(?:, in_\d+(?:_ptr|\.contiguous\(\))?)+")
_LISTS = re.compile(r"def .*|    return \(in_.*|    LAUNCHES\w*\[key\]\(.*|    in_\d+, .* = in_.*")


def in_order(source: str, values: Sequence[int]) -> str:
    """The source of a module with its inputs renumbered. `values[n]`: the number that input n has in the task's graph;
    inputs are numbered anew in the order of these, and lists of them stand in that order."""
    new = {old: number for number, old in enumerate(sorted(range(len(values)), key=lambda n: values[n]))}
    if all(old == number for old, number in new.items()):
        return source
    text = _INPUT.sub(lambda found: f"in_{new[int(found[1])]}", source)
    return "\n".join(_sorted(line) if _LISTS.fullmatch(line) else line for line in text.split("\n"))


def _sorted(line: str) -> str:
    return _LIST.sub(lambda found: ", ".join(sorted(found[0].split(", "), key=_number)), line)


def _number(name: str) -> int:
    return int(_INPUT.match(name)[1])
