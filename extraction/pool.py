"""Tasks in killable processes: each in a fork of a warm server process, with hard limits on time and memory.

A task that loops, crashes, prints without end, starts processes or eats memory costs its own answer and no other.
Arguments and answers cross the processes as JSON. The server is a process of its own (`extraction.pool_server`), so
nothing of the caller is imported again, whether it is a script, `python -c`, a test or a thread of a flow.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from extraction.pool_server import Settings
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
    "TOKENIZERS_PARALLELISM": "false",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TRANSFORMERS_OFFLINE": "1",
}
"""Set in workers: no network, no GPU, no threads (the models side by side are the parallelism)."""

_POLL_S = 0.5
"""How long a read of the server waits before Python looks for signals and asynchronous exceptions, in seconds."""


@dataclass(frozen=True)
class Reply:
    """How one task ended.

    `answer` is the last complete answer, or None. `end` is "exit", "signal" or "timeout", `code` the exit code, the
    signal's number, or the limit in seconds; `log` the end of what the worker printed.
    """

    payload: Any
    answer: Any
    end: str
    code: int
    log: str
    seconds: float

    @property
    def completed(self) -> bool:
        """Whether the task ran to its end."""
        return self.end == "exit" and self.code == 0


def run_tasks(
    task: str,
    payloads: Iterable[Any],
    *,
    workers: int,
    timeout_s: float,
    memory_mb: int,
    prepare: str = "",
) -> Iterator[Reply]:
    """Runs `task` on each payload, `workers` at a time, and yields replies as they come.

    `task` names a generator function as `module:function`; it is called with one payload (JSON data) and yields
    answers (JSON data), each replacing the one before. `prepare` names a function that the server calls once, to import
    and warm up what all tasks need. `timeout_s` and `memory_mb` (private memory beyond the server's own) limit each
    worker. Payloads are taken as workers become free. Closing the iterator kills all workers.

    Raises PassNetError if the server cannot start or dies.
    """
    with tempfile.TemporaryDirectory(prefix="passnet-workers-", ignore_cleanup_errors=True) as scratch:
        settings = Settings(task, prepare, workers, timeout_s, memory_mb, scratch)
        with (Path(scratch) / "server.log").open("w+b") as log, _server(settings, log) as server:
            running: dict[int, Any] = {}
            replies = _lines(server, log)
            for number, payload in enumerate(payloads):
                if len(running) == workers:
                    yield _reply(next(replies), running)
                running[number] = payload
                _send(server, {"id": number, "payload": payload}, log)
            while running:
                yield _reply(next(replies), running)


@contextlib.contextmanager
def _server(settings: Settings, log: IO[bytes]) -> Iterator[subprocess.Popen]:
    """The server process; it ends with the block, and its workers with it."""
    path = os.pathsep.join(dict.fromkeys(os.path.abspath(entry) for entry in sys.path))
    process = subprocess.Popen(
        [sys.executable, "-m", "extraction.pool_server", json.dumps(asdict(settings))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env={**os.environ, **ENVIRONMENT, "PYTHONPATH": path, "TMPDIR": settings.scratch},
    )
    try:
        yield process
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


def _send(server: subprocess.Popen, message: dict[str, Any], log: IO[bytes]) -> None:
    try:
        server.stdin.write(json.dumps(message).encode() + b"\n")
        server.stdin.flush()
    except BrokenPipeError:
        raise _dead(server, log) from None


def _lines(server: subprocess.Popen, log: IO[bytes]) -> Iterator[dict[str, Any]]:
    """The server's messages. Waits in short steps, so that a thread's interruption is noticed."""
    fd = server.stdout.fileno()
    buffer = b""
    while True:
        line, newline, rest = buffer.partition(b"\n")
        if newline:
            buffer = rest
            yield json.loads(line)
        elif select.select([fd], [], [], _POLL_S)[0]:
            part = os.read(fd, 1 << 20)
            if not part:
                raise _dead(server, log)
            buffer += part


def _reply(message: dict[str, Any], running: dict[int, Any]) -> Reply:
    payload = running.pop(message.pop("id"))
    return Reply(payload, **message)


def _dead(server: subprocess.Popen, log: IO[bytes]) -> PassNetError:
    code = server.wait()
    log.seek(0)
    lines = log.read().decode("utf-8", "replace").strip().splitlines()
    said = f": {lines[-1].strip()}" if lines else ""
    return PassNetError(f"the tracing server ended with exit code {code}{said}; run the command again")
