"""Tasks in killable processes: each in a fork of a warm server process, with hard limits on time and memory.

A task that loops, crashes, prints without end, starts processes or eats memory costs its own answer and no other.
Arguments and answers cross the processes as JSON. The server is a process of its own (`extraction.pool.server`), so
nothing of the caller is imported again, whether it is a script, `python -c`, a test or a thread of a flow.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any, Protocol, Self

from extraction.pool.server import PoolSettings
from storage.errors import PassNetError

ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",  # a fork cannot use CUDA, and tracing needs none
    "DO_NOT_TRACK": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONWARNINGS": "ignore",
    "SYMPY_CACHE_SIZE": "None",  # no bound: TorchInductor asks for the same expressions again and again
    "TOKENIZERS_PARALLELISM": "false",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TRANSFORMERS_OFFLINE": "1",
}
"""Set in workers: no network, no GPU, no threads (the models side by side are the parallelism)."""

PROCESSES = 256
"""Processes that a task may have at a time, by default."""
DISK_MB = 8_192
"""MiB that a task may write, by default."""

_POLL_S = 0.5
"""How long a read of the server waits before Python looks for signals and asynchronous exceptions, in seconds."""


@dataclass(frozen=True)
class TaskReply:
    """How one task ended. `answer` is the last complete answer, or None.

    `end` is "exit", "signal", the limit that it met ("timeout", "memory", "processes", "disk"), or "lost" with its node
    each time it was begun. `code` is the exit code, the signal's number, the limit (in seconds, MiB or processes), or
    how often it was begun. `log` is the end of what the worker printed. `where` names the node, "" where there is one.
    """

    payload: Any
    answer: Any
    end: str
    code: int
    log: str
    seconds: float
    where: str = ""

    @property
    def completed(self) -> bool:
        """Whether the task ran to its end."""
        return self.end == "exit" and self.code == 0


class ServerEnded(PassNetError):
    """The server is gone, and all workers with it."""


class TaskPool(Protocol):
    """Where tasks run: `Pool` on this machine, or `extraction.pool.ray_pool.RayPool` on a cluster."""

    size: str
    """How much works here, in words."""

    def warm_up(self, prepare: str) -> None: ...

    def run(self, task: str, payloads: Iterable[Any], prepare: str = "") -> Iterator[TaskReply]: ...


class Pool:
    """Runs tasks in forks of one server, which is started by the first tasks and kept warm for later ones.

    `workers` at a time. Each is limited, with all that it starts: to `timeout_s` seconds, `memory_mb` MiB of memory
    beyond the server's own, `processes` at a time, and `disk_mb` MiB written. Use it as a context manager.
    """

    def __init__(
        self,
        *,
        workers: int,
        timeout_s: float,
        memory_mb: int,
        processes: int = PROCESSES,
        disk_mb: int = DISK_MB,
    ) -> None:
        self.settings = PoolSettings(workers, timeout_s, memory_mb, processes, disk_mb, "")
        self._prepared: set[str] = set()
        self._open = contextlib.ExitStack()
        self._server: _Server | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server, and all workers with it."""
        self._server = None
        self._prepared.clear()
        self._open.close()

    @property
    def size(self) -> str:
        """How much works here, in words."""
        return f"{self.settings.workers} workers"

    def warm_up(self, prepare: str) -> None:
        """Start the server and let it prepare, as `run` does, while the caller goes on. Raises PassNetError if it
        cannot start."""
        server = self._started()
        if prepare not in self._prepared:
            server.send({"prepare": prepare})
            self._prepared.add(prepare)

    def _started(self) -> "_Server":
        self._server = self._server or self._open.enter_context(_server(self.settings, self._begun))
        return self._server

    @staticmethod
    def _begun(settings: PoolSettings, log: IO[bytes]) -> subprocess.Popen:
        """A new server."""
        return subprocess.Popen(
            [sys.executable, "-m", "extraction.pool.server", json.dumps(asdict(settings))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=server_environment(settings),
        )

    def run(self, task: str, payloads: Iterable[Any], prepare: str = "") -> Iterator[TaskReply]:
        """Runs `task` on each payload and yields replies as they come.

        `task` names a generator function as `module:function`; it is called with one payload (JSON data) and yields
        answers (JSON data), each replacing the one before. `prepare` names a function that the server calls before,
        once, to import and warm up what all tasks need. Payloads are taken as workers become free. One run at a time;
        closing the iterator before its end kills all workers.

        Raises PassNetError if the server cannot start or dies.
        """
        server = self._started()
        running: dict[int, Any] = {}
        try:
            if prepare:
                self.warm_up(prepare)
            for number, payload in enumerate(payloads):
                if len(running) == self.settings.workers:
                    yield server.reply(running)
                running[number] = payload
                server.send({"id": number, "task": task, "payload": payload})
            while running:
                yield server.reply(running)
        except BaseException as error:
            if running or not isinstance(error, GeneratorExit):  # what still runs, or has died, answers no later run
                self.close()
            raise


def run_tasks(
    task: str, payloads: Iterable[Any], *, workers: int, timeout_s: float, memory_mb: int, prepare: str = ""
) -> Iterator[TaskReply]:
    """`Pool.run` with a server of its own."""
    with Pool(workers=workers, timeout_s=timeout_s, memory_mb=memory_mb) as pool:
        yield from pool.run(task, payloads, prepare)


class _Server:
    """The server process as its parent sees it."""

    def __init__(self, process: subprocess.Popen, log: IO[bytes]) -> None:
        self.process, self._log = process, log
        self._replies = self._lines()

    def send(self, message: dict[str, Any]) -> None:
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self._dead() from None

    def reply(self, running: dict[int, Any]) -> TaskReply:
        """The next reply; its payload is taken out of `running`."""
        message = next(self._replies)
        payload = running.pop(message.pop("id"))
        return TaskReply(payload, **message)

    def _lines(self) -> Iterator[dict[str, Any]]:
        """The server's messages. Waits in short steps, so that a thread's interruption is noticed."""
        fd = self.process.stdout.fileno()
        buffer = b""
        while True:
            line, newline, rest = buffer.partition(b"\n")
            if newline:
                buffer = rest
                yield json.loads(line)
            elif select.select([fd], [], [], _POLL_S)[0]:
                part = os.read(fd, 1 << 20)
                if not part:
                    raise self._dead()
                buffer += part

    def _dead(self) -> PassNetError:
        code = self.process.wait()
        self._log.seek(0)
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        said = f": {lines[-1].strip()}" if lines else ""
        return ServerEnded(f"the tracing server ended with exit code {code}{said}; run the command again")


def server_environment(settings: PoolSettings) -> dict[str, str]:
    """The environment of a server: this process's, with its path, `ENVIRONMENT`, and a place for temporary files."""
    path = os.pathsep.join(dict.fromkeys(os.path.abspath(entry) for entry in sys.path))
    return {**os.environ, **ENVIRONMENT, "PYTHONPATH": path, "TMPDIR": settings.scratch}


@contextlib.contextmanager
def _server(settings: PoolSettings, begun: Callable[[PoolSettings, IO[bytes]], subprocess.Popen]) -> Iterator[_Server]:
    """The server process, in a scratch directory of its own; it ends with the block, and its workers with it."""
    with (
        tempfile.TemporaryDirectory(prefix="passnet-workers-", ignore_cleanup_errors=True) as scratch,
        (Path(scratch) / "server.log").open("w+b") as log,
    ):
        process = begun(replace(settings, scratch=scratch), log)
        try:
            yield _Server(process, log)
        finally:
            process.terminate()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.close()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:  # stuck in an import; it has no workers then
                process.kill()
                process.wait()
