"""The same demonstration with other numbers: sizes and small constants are to be copied from the task, not known."""

import random
import re

_SIZE = re.compile(r"(?<![\w.\-])[1-9]\d+(?![\w.])")
_SMALL = re.compile(r"(?<![\w.])1e-(?:05|06|07|08|12)(?!\d)")
_SMALL_ONES = ("1e-05", "1e-06", "1e-07", "1e-08", "1e-12")
_OF_HOSTS = frozenset({"16", "32", "64", "1024", "2048", "4096"})
"""Numbers that host code has whatever the task is."""


def renumbered(task: str, answer: str, rng: random.Random) -> tuple[str, str]:
    """The task and its answer with other numbers of as many digits, the same one for the same, in both.

    Unchanged where the answer has a number that was computed from the task's.
    """
    own = set(_SIZE.findall(task)) - _OF_HOSTS
    if set(_SIZE.findall(answer)) - own - _OF_HOSTS:
        return task, answer
    taken = own | _OF_HOSTS
    new: dict[str, str] = {}
    for number in sorted(own):
        while (other := str(rng.randrange(10 ** (len(number) - 1), 10 ** len(number)))) in taken:
            if len(taken) > 60:  # of two digits there are 90
                return task, answer
        taken.add(other)
        new[number] = other
    small = dict(zip(_SMALL_ONES, rng.sample(_SMALL_ONES, len(_SMALL_ONES)), strict=True))

    def changed(text: str) -> str:
        text = _SIZE.sub(lambda found: new.get(found[0], found[0]), text)
        return _SMALL.sub(lambda found: small[found[0]], text)

    return changed(task), changed(answer)
