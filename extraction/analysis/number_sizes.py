"""How large a number, text or list an op may make of others. A short graph can ask for one that fills the memory, or
takes years: `10 ** 1000000000`. Graphs come from anybody, and ops without tensors compute when they are propagated."""

from collections.abc import Sequence
from typing import Any

_MOST_BITS = 4096
_MOST_ITEMS = 100_000
_COUNTING = frozenset(("math.comb", "math.factorial", "math.perm"))
_SHIFTING = frozenset(("operator.lshift", "operator.ilshift"))
_REPEATING = frozenset(("operator.mul", "operator.imul"))
_RAISING = frozenset(("operator.pow", "operator.ipow", "builtins.pow"))
_FORMATTING = frozenset(("operator.mod", "operator.imod"))


class ResultTooLarge(ValueError):
    """The result would be too large."""


def check_arguments(target: str, given: Sequence[Any]) -> None:
    """Raises ResultTooLarge where a function of numbers would compute for long, or fill the memory: of arguments that
    `check_result` has let through."""
    first, second = (*given, None, None)[:2]
    numbers = [value for value in given if isinstance(value, int)]
    if target in _RAISING and len(numbers) == len(given) == 2:
        large = abs(first) > 1 and second > 0 and first.bit_length() * second > _MOST_BITS
    elif target in _SHIFTING:
        large = isinstance(second, int) and second > _MOST_BITS
    elif target in _REPEATING:
        items = [len(value) for value in (first, second) if isinstance(value, str | bytes | list | tuple)]
        large = any(length * number > _MOST_ITEMS for length in items for number in numbers)
    elif target in _FORMATTING:
        large = isinstance(first, str | bytes)  # `"%1000000000d" % 1`
    else:
        large = target in _COUNTING and any(number > _MOST_BITS for number in numbers)
    if large:
        raise ResultTooLarge(f"{target} would make something of more than {_MOST_BITS} bits or {_MOST_ITEMS} items")


def check_result(target: str, value: Any) -> None:
    """Raises ResultTooLarge for a number, text or list that is too large to go on with, of a function that is none of
    torch's."""
    if target.startswith("torch."):
        return
    large = isinstance(value, int) and value.bit_length() > _MOST_BITS
    if large or (isinstance(value, str | bytes | list | tuple) and len(value) > _MOST_ITEMS):
        raise ResultTooLarge(f"{target} makes something of more than {_MOST_BITS} bits or {_MOST_ITEMS} items")
