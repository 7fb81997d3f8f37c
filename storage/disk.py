"""What the disk says and how a file gets there for good: errors in words that help, and fsync."""

import contextlib
import errno
import json
import math
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from storage.errors import PassNetError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors that mean: there is no room."""
REFUSED = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENOTEMPTY,
    errno.ENAMETOOLONG,
)  # fmt: skip
"""Errors that mean: this place cannot be written, however much room it has."""


def disk_error(error: OSError, path: Path, elsewhere: str) -> PassNetError:
    """What an OSError while writing `path` means to a user.

    `elsewhere` is what to choose instead, such as "another --out". A full disk is told from a place that cannot be
    written, since the advice differs.
    """
    reason = reason_of(error)
    if error.errno in FULL:
        return PassNetError(
            f"no room for {path} ({reason}): {megabytes_free(path)} are free: free some, or choose {elsewhere}"
        )
    if error.errno in REFUSED:
        return PassNetError(f"cannot write to {path} ({reason}): choose {elsewhere} or fix its permissions")
    return PassNetError(f"writing {path} failed ({reason}): check the disk and run it again")


def reason_of(error: OSError) -> str:
    """The operating system's words for an error."""
    return os.strerror(error.errno) if error.errno else str(error)


def megabytes_free(path: Path) -> str:
    """The room on the disk that `path` is or would be on, such as "12.5 MB"."""
    there = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
    return megabytes(shutil.disk_usage(there).free)


def megabytes(size: int) -> str:
    """A number of bytes as text."""
    return f"{size / 1e6:.1f} MB"


@contextlib.contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """The name under which to write a file that shall be called `path`: it is flushed and renamed if all goes well, and
    removed if not. The directory is made where it is missing. Raises OSError."""
    partial = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")  # ids are one host's
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        flush(partial)
        partial.replace(path)
        flush(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def check_regular(path: Path, most: float = math.inf) -> None:
    """Raises OSError where a path is no regular file of at most so many bytes: whoever opens a pipe waits, and a device
    may have no end."""
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        raise OSError(errno.EINVAL, "this is not a regular file", str(path))
    if about.st_size > most:
        raise OSError(errno.EFBIG, f"the file has more than {most} bytes", str(path))


def check_writable(directory: Path, elsewhere: str) -> None:
    """Raises PassNetError where no file can be made in the directory, which is made if it is missing: for work whose
    result is written at its end. `elsewhere` as in `disk_error`."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise disk_error(error, directory, elsewhere) from error


def write_json(path: Path, data: Any, elsewhere: str = "another directory", **how: Any) -> None:
    """Write `data` as JSON and a newline to `path`, whole or not at all; `how` goes to `json.dumps`.

    Raises PassNetError where the disk refuses it, which advises to choose `elsewhere`.
    """
    text = json.dumps(data, **how)
    try:
        with appearing(path) as partial:
            partial.write_text(text + "\n", "utf-8")
    except OSError as error:
        raise disk_error(error, path, elsewhere) from error


@contextlib.contextmanager
def filling(directory: Path) -> Iterator[Path]:
    """An empty directory whose files move into `directory` if all goes well; if not, `directory` is as it was before.

    A file of the same name is replaced, others stay. Raises OSError.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=f".{directory.name}.", suffix=".partial") as place:
        yield Path(place)
        flush_tree(Path(place))
        directory.mkdir(exist_ok=True)
        for path in sorted(Path(place).rglob("*")):
            target = directory / path.relative_to(place)
            if path.is_dir():
                target.mkdir(exist_ok=True)
            else:
                path.replace(target)
        flush_tree(directory)


def flush_tree(root: Path) -> None:
    """Write every file and directory below `root`, and `root`, through to the disk."""
    for directory, _, names in os.walk(root, topdown=False):
        for name in names:
            flush(Path(directory, name))
        flush(Path(directory))


def flush(path: Path) -> None:
    """Write a file or directory through to the disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
