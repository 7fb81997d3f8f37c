"""Processes that begin where their imports end: forks of one process, which all tests of a run share, xdist's too.

It imports what the tests' processes have in common and warms tracing up as a pool's server does, once; a fork takes
milliseconds. It ends when the last process that holds its directory (`WarmForks.held`) has ended.
"""

import contextlib
import fcntl
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NoReturn

from extraction.pool.client import ENVIRONMENT
from passbench.workers.fork_end import end_after

ROOT = Path(__file__).resolve().parents[2]
_MOST_BYTES = 1 << 18


class WarmProcess:
    """A fork, as far as `subprocess.Popen` is asked for what it does."""

    stdin: IO[bytes]
    stdout: IO[bytes]

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._pid = self._code = None

    @property
    def pid(self) -> int:
        """Its number; waits until it has one."""
        if self._pid is None:
            self._pid = self._said()
        return self._pid

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, or minus the number of the signal that ended it."""
        if self._code is None:
            pid = self.pid
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"the warm process {pid}", timeout)
            self._code = self._said()
            self._connection.close()
        return self._code

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        pid = self.pid
        if self._code is None and not select.select([self._connection], [], [], 0)[0]:
            os.kill(pid, number)

    def _said(self) -> int:
        said = self._connection.recv(100)
        assert said, "the process that this one is a fork of has ended"
        return int(said)


class WarmForks:
    """Starts forks of the process whose socket is in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keeps the process that is forked; it is started with the first fork."""
        with contextlib.closing(self._connected()):
            yield

    def start(
        self,
        program: str,
        arguments: Sequence[str] = (),
        *,
        files: tuple[int, int, int],
        environment: Mapping[str, str] = os.environ,
        path: Sequence[str] = (),
        directory: Path = Path(),
    ) -> WarmProcess:
        """A fork that executes a program's text as `python -c` does, with the descriptors `files` as its standard
        input, output and errors. `path` is Python's path, unless it is empty."""
        given = {
            "program": textwrap.dedent(program),
            "arguments": ["-c", *arguments],
            "environment": dict(environment),
            "path": list(path),
            "directory": str(directory.resolve()),
        }
        connection = self._connected()
        socket.send_fds(connection, [json.dumps(given).encode()], files)
        return WarmProcess(connection)

    def run(self, program: str, arguments: Sequence[str] = (), **how: Any) -> subprocess.CompletedProcess:
        """The end of a program: status, output and errors as text."""
        with open(os.devnull, "rb") as null, tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            files = (null.fileno(), out.fileno(), err.fileno())
            status = self.start(program, arguments, files=files, **how).wait()
            for file in (out, err):
                file.seek(0)
            return subprocess.CompletedProcess(program, status, out.read(), err.read())

    def _connected(self) -> socket.socket:
        """A connection to the process; the first one starts it."""
        self.directory.mkdir(exist_ok=True)
        with (self.directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            address = self.directory / "socket"
            try:
                connection.connect(str(address))
            except (FileNotFoundError, ConnectionRefusedError):
                address.unlink(missing_ok=True)
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                    listener.bind(str(address))
                    listener.listen(64)
                    connection.connect(str(address))
                    with (self.directory / "log").open("ab") as log:
                        subprocess.Popen(
                            [sys.executable, "-m", "tests.support.warm_forks", str(listener.fileno())],
                            cwd=ROOT, env=os.environ | ENVIRONMENT, pass_fds=[listener.fileno()],
                            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                        )  # fmt: skip
            return connection


def _serve(listener: socket.socket) -> None:
    """Forks for each who asks, and tells him the fork's number and then its end, until nobody is connected any more."""
    connected: set[socket.socket] = set()
    running: dict[int, tuple[int, socket.socket]] = {}  # a descriptor of the process, its number, who waits for it
    first = True
    while first or connected or running:
        for ready in select.select([listener, *connected, *running], [], [])[0]:
            if ready is listener:
                connected.add(listener.accept()[0])
                first = False
            elif ready in running:
                pid, asker = running.pop(ready)
                os.close(ready)
                _tell(asker, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                asker.close()
            else:
                given, files, _, _ = socket.recv_fds(ready, _MOST_BYTES, 3)
                connected.remove(ready)
                if not given:
                    ready.close()
                    continue
                pid = os.fork()
                if pid == 0:
                    _be(json.loads(given), files)
                for file in files:
                    os.close(file)
                running[os.pidfd_open(pid)] = pid, ready
                _tell(ready, pid)


def _tell(asker: socket.socket, number: int) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it was killed
        asker.send(str(number).encode())


def _be(given: dict[str, Any], files: Sequence[int]) -> NoReturn:
    """The life of a fork."""

    def life() -> None:
        os.setsid()
        for number, file in enumerate(files):
            os.dup2(file, number)
        os.closerange(3, 1 << 16)
        os.environ.clear()
        os.environ.update(given["environment"])
        os.chdir(given["directory"])
        tempfile.tempdir = None
        sys.argv[:] = given["arguments"]
        sys.path[:] = given["path"] or sys.path
        gc.enable()
        exec(compile(given["program"], "<program>", "exec"), {"__name__": "__main__"})

    end_after(life)


def _import_all() -> None:
    gc.disable()  # nearly nothing of it is garbage
    import pandas  # noqa: F401

    import flows.build_dataset
    import flows.cli.main  # noqa: F401
    from extraction.tracing import trace_workers

    trace_workers.prepare()
    gc.freeze()


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as shared:
        _import_all()
        _serve(shared)
