"""The warm process that forks a worker for each task, watches over it, and kills it with everything that it started.

Run by `extraction.pool.client` as `python -m extraction.pool.server SETTINGS` with lines of JSON as its standard input
and output. It imports the libraries once, as it is told; a worker is a fork of it, so it starts in milliseconds. It
ends, and its workers with it, when its standard input closes.

A worker has its own session, scratch directory and limits; of what it prints the last `LOG_BYTES` are kept. The kernel
holds each of its processes to the limit of memory and each file to that of disk; `extraction.pool.watch` holds all of
its processes together to these and to their number. Its task is a function that yields answers, each better than the
one before; the last complete one counts, however the worker ends.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import selectors
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from extraction.pool import watch

LOG_BYTES = 16_384
YOUNG_OBJECTS = 20_000
"""New objects after which Python looks for garbage. With Python's own 700, a quarter of varying's time went there."""
WATCH_S = 0.1
"""Seconds between two looks at a worker's processes. Memory and disk are looked at each `LOOKS_AT_USE`th time."""
LOOKS_AT_USE = 5
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_CHUNK = 1 << 16
_TO_REPORT_BYTES = 64 << 20  # a worker that has used up its memory needs some to say so

Task = Callable[[Any], Iterator[Any]]


@dataclass(frozen=True)
class PoolSettings:
    """How the server works: see `extraction.pool.client.Pool`."""

    workers: int
    timeout_s: float
    memory_mb: int
    processes: int
    disk_mb: int
    scratch: str


@dataclass
class PoolWorker:
    """A forked worker: its process, the pipes that it writes to, and what has come through them."""

    job: int
    pid: int
    pidfd: int
    answer_fd: int
    log_fd: int
    scratch: str
    started: float
    answers: bytearray = field(default_factory=bytearray)
    log: bytes = b""
    stopped: tuple[str, int] | None = None  # by which limit, if it was: what its end is called, and the limit

    def read(self, fd: int) -> bool:
        """Takes some of what a pipe holds now; false if that was its end, or nothing."""
        try:
            part = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        if fd == self.answer_fd:
            self.answers += part
        else:
            self.log = (self.log + part)[-LOG_BYTES:]
        return bool(part)

    def kill(self) -> None:
        """Kills the worker's whole session; it is reaped later."""
        _kill_group(self.pid)

    def stop(self, end: str, limit: int) -> None:
        """Kills the worker and all its processes for having met a limit."""
        self.stopped = (end, limit)
        self.kill()
        for pid in watch.tree(self.pid)[1:]:  # in sessions of their own
            _kill(pid)


class Server:
    """One loop over the control pipes, the workers' pipes and their ends."""

    def __init__(self, settings: PoolSettings, control_in: int, control_out: int) -> None:
        self.settings = settings
        self.control_in, self.control_out = control_in, control_out
        self.selector = selectors.DefaultSelector()
        self.jobs: deque[dict[str, Any]] = deque()
        self.workers: dict[int, PoolWorker] = {}
        self.requests = b""
        self.outgoing = bytearray()
        self.open = True
        self.looks, self.next_look = 0, 0.0

    def run(self) -> None:
        """Serves until the standard input closes; then kills all workers."""
        os.set_blocking(self.control_in, False)
        os.set_blocking(self.control_out, False)
        self.selector.register(self.control_in, selectors.EVENT_READ)
        try:
            while self.open:
                while self.jobs and len(self.workers) < self.settings.workers:
                    self._start(self.jobs.popleft())
                for key, _ in self.selector.select(WATCH_S if self.workers else None):
                    self._handle(key.fd, key.data)
                if time.monotonic() >= self.next_look:
                    self._stop_those_over_a_limit()
                    self.next_look = time.monotonic() + WATCH_S
        finally:
            _hear_no_more()
            for worker in self.workers.values():
                worker.kill()
            _kill_orphans(set())
            shutil.rmtree(self.settings.scratch, ignore_errors=True)  # the client may have been killed

    def _handle(self, fd: int, worker: PoolWorker | None) -> None:
        if fd == self.control_in:
            self._read_jobs()
        elif fd == self.control_out:
            self._write()
        elif worker is not None and worker.pid in self.workers:
            if fd == worker.pidfd:
                self._finish(worker)
            elif not worker.read(fd):  # closed by a worker that goes on: it would be readable for ever
                self.selector.unregister(fd)

    def _read_jobs(self) -> None:
        data = os.read(self.control_in, _CHUNK)
        self.open = bool(data)
        *lines, self.requests = (self.requests + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "prepare" in message:
                _prepare(message["prepare"])
            else:
                self.jobs.append(message)

    def say(self, message: dict[str, Any]) -> None:
        """Queues a line for the parent."""
        self.outgoing += json.dumps(message).encode() + b"\n"
        self._write()

    def _write(self) -> None:
        try:
            while self.outgoing:
                del self.outgoing[: os.write(self.control_out, self.outgoing[:_CHUNK])]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self.open = False
            self.outgoing.clear()
        registered = self.control_out in self.selector.get_map()
        if self.outgoing and not registered:
            self.selector.register(self.control_out, selectors.EVENT_WRITE)
        elif registered and not self.outgoing:
            self.selector.unregister(self.control_out)

    def _stop_those_over_a_limit(self) -> None:
        self.looks += 1
        use = self.looks % LOOKS_AT_USE == 0
        for worker in self.workers.values():
            if worker.stopped is not None:
                continue
            if time.monotonic() >= worker.started + self.settings.timeout_s:
                worker.stop("timeout", round(self.settings.timeout_s))
            elif found := watch.over(worker.pid, Path(worker.scratch), self.settings, use):
                worker.stop(*found)

    def _start(self, job: dict[str, Any]) -> None:
        task: Task = _function(job["task"])
        scratch = tempfile.mkdtemp(dir=self.settings.scratch)
        answers, answer_end = os.pipe()
        log, log_end = os.pipe()
        server, pid = os.getpid(), os.fork()
        if pid == 0:
            _work(task, job["payload"], answer_end, log_end, scratch, self.settings, server)
        os.close(answer_end)
        os.close(log_end)
        worker = PoolWorker(job["id"], pid, os.pidfd_open(pid), answers, log, scratch, time.monotonic())
        self.workers[pid] = worker
        for fd in (worker.answer_fd, worker.log_fd, worker.pidfd):
            os.set_blocking(fd, False)
            self.selector.register(fd, selectors.EVENT_READ, worker)

    def _finish(self, worker: PoolWorker) -> None:
        seconds = time.monotonic() - worker.started  # first: to clean up after it may take long
        worker.kill()  # what it started, while its process group cannot be anyone else's yet
        _, status = os.waitpid(worker.pid, 0)
        del self.workers[worker.pid]
        _kill_orphans(set(self.workers))
        for fd in (worker.answer_fd, worker.log_fd):
            while worker.read(fd):
                pass
        for fd in (worker.answer_fd, worker.log_fd, worker.pidfd):
            if fd in self.selector.get_map():
                self.selector.unregister(fd)
            os.close(fd)
        shutil.rmtree(worker.scratch, ignore_errors=True)
        end, code = ("signal", os.WTERMSIG(status)) if os.WIFSIGNALED(status) else ("exit", os.WEXITSTATUS(status))
        if worker.stopped is not None:
            end, code = worker.stopped
        elif seconds >= self.settings.timeout_s:  # between two looks
            end, code = "timeout", round(self.settings.timeout_s)
        complete = bytes(worker.answers).split(b"\n")[:-1]
        self.say(
            {
                "id": worker.job,
                "answer": json.loads(complete[-1]) if complete else None,
                "end": end,
                "code": code,
                "log": worker.log.decode("utf-8", "replace"),
                "seconds": seconds,
            }
        )


def _work(
    task: Task, payload: Any, answer_fd: int, log_fd: int, scratch: str, settings: PoolSettings, server: int
) -> NoReturn:
    """The life of a worker, after the fork. Exits with 0 if the task ran to its end, else with 1 and a traceback."""
    code = 1
    try:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != server:  # it died before that was asked for
            os._exit(1)
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what it starts stays below it, and counts as its own
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        os.dup2(answer_fd, 3)
        os.closerange(4, 1 << 16)
        os.chdir(scratch)
        os.environ["TMPDIR"] = tempfile.tempdir = scratch
        _limit(settings.memory_mb, settings.disk_mb)
        with open(3, "w", encoding="utf-8", closefd=False) as answers:
            for answer in task(payload):
                answers.write(json.dumps(answer, allow_nan=True) + "\n")
                answers.flush()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:  # the traceback is the answer; nothing of the server's own state may run on in a fork
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code & 0xFF)


def _limit(memory_mb: int, disk_mb: int) -> None:
    """Private writable memory beyond what the fork shares with the server; the size of a file; and no core dumps.

    The address space is not limited: torch reserves far more than it uses.
    """
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    limit = int(fields["VmData"].split()[0]) * 1024 + memory_mb * 1024 * 1024
    _lower(resource.RLIMIT_DATA, limit, limit + _TO_REPORT_BYTES)
    _lower(resource.RLIMIT_FSIZE, disk_mb << 20, disk_mb << 20)
    _lower(resource.RLIMIT_CORE, 0, 0)


def _lower(which: int, soft: int, hard: int) -> None:
    """Set a limit, or leave the one of the machine (`ulimit -H`) where that is lower: no process may raise it."""
    _, most = resource.getrlimit(which)
    least = hard if most == resource.RLIM_INFINITY else min(hard, most)
    resource.setrlimit(which, (min(soft, least), least))


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:  # the fork has not made its session yet
        os.kill(pid, signal.SIGKILL)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended since
        os.kill(pid, signal.SIGKILL)


def _kill_orphans(workers: set[int]) -> None:
    """Kills and reaps what workers left behind in sessions of its own: it has become a child of this process."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while children.exists():
        orphans = [int(pid) for pid in children.read_text().split() if int(pid) not in workers]
        if not orphans:
            return
        for pid in orphans:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _prepare(name: str) -> None:
    gc.disable()  # nearly nothing of it is garbage, and looking for it takes a fifth of the time
    _function(name)()
    gc.freeze()  # so that workers do not copy memory by collecting it
    gc.enable()
    sys.stdout.flush()  # else every worker prints what the imports printed
    gc.set_threshold(YOUNG_OBJECTS)


def _function(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def _end(*_: object) -> NoReturn:
    _hear_no_more()
    sys.exit(1)


def _hear_no_more() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # a second one would break off what ends the workers
        signal.signal(number, signal.SIG_IGN)


def main() -> None:
    """Serves as the settings in the first argument say, see the module's text."""
    settings = PoolSettings(**json.loads(sys.argv[1]))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    control_in, control_out = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)  # imports that print must not disturb the protocol
    try:
        Server(settings, control_in, control_out).run()
    except SystemExit as ended:
        os._exit(int(ended.code))  # taking apart what it has imported takes a second
    os._exit(0)


if __name__ == "__main__":
    main()
