"""Making a directory that appears whole or not at all: locks, staging, links, flushing, what a full disk says."""

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from storage.disk import FULL, REFUSED, disk_error, megabytes, megabytes_free, reason_of
from storage.errors import PassNetError


@contextlib.contextmanager
def locked(directory: Path, name: str = ".lock", waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold a lock file in `directory`, waiting for whoever holds it; the kernel frees it with its holder.

    `waiting` is called where somebody holds it. Raises PassNetError when it cannot be made.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = _opened(directory / name)
    except OSError as error:
        raise explained(error, directory, 0) from error
    with file:
        if not _held(file, directory, fcntl.LOCK_NB):
            if waiting is not None:
                waiting()
            _held(file, directory)
        yield


def _opened(path: Path) -> IO[str]:
    """A lock file, made if it is missing. A data directory may come from anybody: a link to elsewhere is not followed,
    and nobody waits for a pipe. Raises OSError."""
    how = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return open(os.open(path, how, 0o666), "a")


def _held(file: IO[str], directory: Path, how: int = 0) -> bool:
    """Whether the lock is held now; False only with LOCK_NB, where somebody else holds it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | how)
    except BlockingIOError:
        return False
    except OSError as error:  # as on a network's file system without a lock service
        raise PassNetError(
            f"{directory} cannot be locked ({reason_of(error)}): choose a --data on a file system that has locks"
        ) from error
    return True


@contextlib.contextmanager
def staging(directory: Path) -> Iterator[Path]:
    """An empty directory on the file system of `directory`, removed at the end with what is left in it.

    Staging directories of publishers that were killed are removed first. Raises PassNetError in place of any OSError.
    """
    for place in (directory, directory / ".staging"):
        if place.name.startswith(".") and place.is_symlink():
            raise PassNetError(f"{place} is a link, and what lies there would be removed: remove the link")
    try:
        with locked(directory):
            _remove_dead(directory / ".staging")
            place, lock = _claim(directory / ".staging")
    except OSError as error:
        raise explained(error, directory, 0) from error
    try:
        (place / "version").mkdir()
        yield place / "version"
    except OSError as error:
        raise explained(error, directory, _bytes_below(place)) from error
    finally:
        shutil.rmtree(place, ignore_errors=True)
        lock.close()


def explained(error: OSError, directory: Path, written: int) -> PassNetError:
    """What an OSError while publishing below `directory` means to a user; `written` bytes were there already."""
    if error.errno in FULL:
        return PassNetError(
            f"no room in {directory} ({reason_of(error)}): the new version needs more than {megabytes(written)}, "
            f"{megabytes_free(directory)} are free: free some, or choose another --data; nothing was published"
        )
    return disk_error(
        error, Path(error.filename or directory) if error.errno not in REFUSED else directory, "another --data"
    )


def link_or_copy(source: Path, target: Path) -> None:
    """Make `target` the same file as `source`, replacing it; a copy where the file system has no hard links."""
    twin = target.with_name(target.name + ".link")
    try:
        os.link(source, twin)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS):
            raise
        shutil.copyfile(source, twin)
    twin.replace(target)


def make_read_only(path: Path) -> None:
    """Versions share files by hard links, so a change in one would be a change in all. A file that is read-only
    already is left alone: it may be another user's, whose version this one shares it with."""
    mode = path.stat().st_mode
    if mode & 0o222:
        path.chmod(mode & ~0o222)


def _claim(parent: Path) -> tuple[Path, IO[str]]:
    parent.mkdir(exist_ok=True)
    place = Path(tempfile.mkdtemp(dir=parent))
    lock = (place / "lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return place, lock


def _remove_dead(parent: Path) -> None:
    """Remove staging directories that nobody holds; call it with the store locked, so that none is just being made."""
    for place in parent.iterdir() if parent.is_dir() else ():
        if place.is_symlink():
            continue
        try:
            lock = _opened(place / "lock")
        except FileNotFoundError:
            shutil.rmtree(place, ignore_errors=True)
            continue
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            shutil.rmtree(place, ignore_errors=True)


def _bytes_below(root: Path) -> int:
    sizes = 0
    for directory, _, names in os.walk(root):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                sizes += Path(directory, name).stat().st_size
    return sizes
