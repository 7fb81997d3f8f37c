"""How the code under test failed, as a worker says it."""

import traceback
from collections.abc import Callable
from pathlib import Path

from passbench.contract import PACKAGE

_MOST_CAUSES = 8  # an error may be its own cause


class CallFailed(Exception):
    """A call of the code under test raised; `index` says which."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


def explain(error: BaseException | None) -> str:
    """An exception and its causes, as text for people, with the line of the pass that it came from, if one did."""
    chain: list[str] = []
    place, first = "", error
    for _ in range(_MOST_CAUSES):
        if error is None:
            break
        place = _line_of_pass(error) or place
        cause = error.__cause__
        said = _text(str, error)
        if cause is None or said != _text(repr, cause):  # Triton's interpreter says nothing but what its cause says
            chain.append(f"{type(error).__name__}: {said}".strip())
        error = cause
    return "\ncaused by ".join(chain or [type(first).__name__]) + place


def _text(make: Callable[[BaseException], str], error: BaseException) -> str:
    """The text of an error, which code of a pass may make."""
    try:
        return make(error)
    except BaseException as failure:  # as in `Worker.handle`
        return f"its text cannot be made: {type(failure).__name__}"


def _line_of_pass(error: BaseException) -> str:
    """` (fuse.py:24, in run)`: the innermost line of the pass on the way of an exception; empty if there is none."""
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        if frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE:
            code = frame.f_code
            return f" ({Path(code.co_filename).name}:{line}, in {code.co_name})"
    return ""
