"""At which level each output of a call agrees with eager's, and which of them eager itself does not repeat.

A deterministic output must be right however far another one varies, such as one of atomic additions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch

from passbench.checking.tolerance import LEVELS, STRICT, t_min
from passbench.result import VariantResult

Level = int | None
"""A level of `LEVELS`; None where nothing agrees at any."""


def levels_of(actual: Iterable[torch.Tensor], expected: Iterable[torch.Tensor]) -> list[Level]:
    """The level of each output."""
    return [
        LEVELS[0] if torch.equal(a, b) else t_min([a], [b])  # equal ones need no closer look
        for a, b in zip(actual, expected, strict=True)
    ]


def worst(levels: Iterable[Level]) -> Level:
    """The level at which all agree."""
    found = list(levels)
    return None if None in found else max(found, default=LEVELS[0])


def varies(own: Level) -> bool:
    """Whether eager called twice, which agrees with itself at the level `own`, is not right at t = -5."""
    return own is None or own > STRICT


def beside_eager(levels: Sequence[Level], own: Sequence[Level]) -> list[Level]:
    """The levels of outputs where eager called twice agrees with itself at the levels `own`. An output that varies
    counts as equal where it is as near to eager as eager is: no pass can be nearer."""
    return [
        LEVELS[0] if varies(its) and level is not None and its is not None and level <= its else level
        for level, its in zip(levels, own, strict=True)
    ]


def counted(result: VariantResult) -> VariantResult:
    """A result of PassBench as a search counts it: its `t_min` is that of `beside_eager`."""
    if result.status != "ok" or not result.levels_eager:
        return result
    own = [result.levels_eager.get(output, LEVELS[0]) for output in result.levels]
    return replace(result, t_min=worst(beside_eager(list(result.levels.values()), own)))
