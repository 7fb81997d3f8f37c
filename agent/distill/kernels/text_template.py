"""Source text with slots: what differs between the variants of a task is a slot, what is equal is plain text.

A slot is a Python literal between « and ». Two texts that differ only in their slots are one template.
"""

import re
from collections.abc import Callable, Sequence

_SLOT = re.compile("«([^»]*)»")


def slot(value: object) -> str:
    """A slot that holds this literal."""
    return f"«{value}»"


def template(text: str) -> str:
    """The text with its slots emptied: equal for texts that differ in slots only."""
    return _SLOT.sub("«»", text)


def values(text: str) -> tuple[str, ...]:
    """The literals in a text's slots, in order."""
    return tuple(_SLOT.findall(text))


def merge(
    texts: Sequence[str], name: Callable[[int, str, str], str], always: tuple[str, ...] = ()
) -> tuple[str, tuple[str, ...], list[tuple[str, ...]]]:
    """Texts of one template as one text, the names that stand for what differs, and each text's literals for them.

    `name(n, before, literal)` names the nth differing slot by the text in front of it and one of its literals. Slots
    behind one of the texts `always` are named even where all texts agree.
    """
    columns = list(zip(*(values(t) for t in texts), strict=True))
    names: dict[tuple[str, ...], str] = {}
    parts = template(texts[0]).split("«»")
    result = parts[0]
    for column, part in zip(columns, parts[1:], strict=True):
        if len(set(column)) == 1 and not result.endswith(always):
            result += column[0]
        else:
            if column not in names:
                names[column] = name(len(names), result, column[0])
            result += names[column]
        result += part
    rows = list(zip(*names, strict=True)) if names else [() for _ in texts]
    return result, tuple(names.values()), rows
