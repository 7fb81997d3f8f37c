"""How the code under test failed, as a worker says it."""

import traceback
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
        if cause is None or str(error) != repr(cause):  # Triton's interpreter says nothing but what its cause says
            chain.append(f"{type(error).__name__}: {error}".strip())
        error = cause
    return "\ncaused by ".join(chain or [type(first).__name__]) + place


def _line_of_pass(error: BaseException) -> str:
    """` (fuse.py:24, in run)`: the innermost line of the pass on the way of an exception; empty if there is none."""
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        if frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE:
            code = frame.f_code
            return f" ({Path(code.co_filename).name}:{line}, in {code.co_name})"
    return ""
