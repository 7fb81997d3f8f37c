"""How deep the functions of a pass call each other in calls that are observed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import FrameType
from typing import Any


class DepthWatch:
    """How deep the functions of a pass call each other, in calls that are observed.

    At Python's limit an operator that is observed fails where one that is not goes through: the observer has frames of
    its own. So a pass could tell observed calls from others there. `deep`: it came near the limit.
    """

    _NEAR = 0.5  # of the limit

    def __init__(self) -> None:
        self.deep = False
        self._outside = _frames(sys._getframe(1))  # of `observe`, whose caller calls a replacement otherwise

    def added(self) -> int:
        """The frames that a replacement's caller has below it here and has not in a timed call, and that of `_called`,
        which Python needs before a function begins."""
        return _frames(sys._getframe(1)) - self._outside + 1

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Watch what is called in this context."""
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)

    def _called(self, frame: FrameType, event: str, argument: Any) -> None:
        if self.deep or frame.f_code.co_filename.startswith(_NOT_RECURSIVE):  # once it is deep, no call of its own
            return
        self.deep = _frames(frame) > self._NEAR * sys.getrecursionlimit()


_NOT_RECURSIVE = tuple(f"{find_spec(name).submodule_search_locations[0]}/" for name in ("torch", "triton", "passbench"))
"""Where functions lie that a pass may call and that call each other a few times at most: they are not looked at, since
there are thousands of calls."""


def _frames(frame: FrameType | None) -> int:
    """How many frames are on the stack, this one included."""
    depth = 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1
    return depth
