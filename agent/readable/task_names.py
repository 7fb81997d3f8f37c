"""Names of a module as in the task: `in_0` and `tmp_3` of the task are `in_0` and `tmp_3` of the module."""

import re

from agent.distill.regions import Region
from storage.graph.render import value_name

_NAME = re.compile(r"(?:\b|(?<=_by_))(in|tmp)_(\d+)")
_ITEM = r"(?:in|tmp)_\d+(?:_ptr|\.contiguous\(\))?"
_LIST = re.compile(rf"{_ITEM}(?:, {_ITEM})+")
_LISTS = re.compile(
    r"def (?:pattern|replacement_args|fused|\w+_kernel\w*)\(.*|    return \((?:in|tmp)_.*|    LAUNCHES\w*\[key\]\(.*"
    r"|    (?:in|tmp)_\d+, .* = (?:in|tmp)_.*\.contiguous\(\).*"
)
"""Lines with lists whose order is free."""


def named_as_in_task(source: str, region: Region) -> str:
    """The source of a region's module, or of its kernels and their host, with the task's names for its values.

    Lists of inputs stand in the task's order. The order of a function's parameters that is called by other names than
    `fused` stays.
    """
    own = len(region.inputs)

    def renamed(found: re.Match) -> str:
        number = int(found[2]) + (0 if found[1] == "in" else own)
        return value_name(region.value(number), region.whole)

    lines = _NAME.sub(renamed, source).split("\n")
    return "\n".join(_sorted(line) if _LISTS.fullmatch(line) else line for line in lines)


def _sorted(line: str) -> str:
    return _LIST.sub(lambda found: ", ".join(sorted(found[0].split(", "), key=_place)), line)


def _place(item: str) -> tuple[str, int]:
    kind, number = _NAME.match(item).groups()
    return kind, int(number)
