"""The life and the end of a fork that runs a program: it never gets back to what it is a fork of."""

import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn


def end_after(life: Callable[[], object]) -> NoReturn:
    """Call `life`, and end this process as Python ends one: with 0, with what SystemExit says, or with 1 and a
    traceback. It ends even where nothing can be written any more; what is registered for the end of the process that
    it is a fork of is not called."""
    status = 1
    try:
        life()
        status = 0
    except SystemExit as ended:
        status = _status(ended.code)
    except BaseException:
        with contextlib.suppress(BaseException):  # the program may have closed or replaced what we write to
            traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(BaseException):
                stream.flush()
        os._exit(status)


def _status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF if -(1 << 63) <= code < 1 << 63 else 0xFF  # Python takes a C long
    with contextlib.suppress(BaseException):
        print(code, file=sys.stderr)
    return 1
