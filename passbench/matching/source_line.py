"""The source expression that is being evaluated, for messages about a traced function."""

import itertools
import linecache
import sys
from types import CodeType

WIDTH = 90


def source_here(code: CodeType) -> tuple[int, str]:
    """Line and text of the expression at which the innermost running call of `code` stands; 0 and "" if unknown."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    if frame is None:
        return 0, ""
    start, end, column, end_column = next(itertools.islice(code.co_positions(), frame.f_lasti // 2, None))
    if None in (start, end, column, end_column):
        return frame.f_lineno or 0, ""
    lines = [linecache.getline(code.co_filename, number).encode() for number in range(start, end + 1)]
    lines[-1] = lines[-1][:end_column]
    lines[0] = lines[0][column:]
    text = " ".join(b"".join(lines).decode("utf-8", "replace").split())
    return start, text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"
