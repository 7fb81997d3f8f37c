"""A child process that runs code which nobody trusts, as its parent sees it."""

import contextlib
import os
import secrets
import select
import signal
import threading
import time
from collections import deque
from pathlib import Path

import torch

from passbench.ipc import wire
from passbench.ipc.messages import Command, WorkerReply
from passbench.ipc.spawn import Spawn
from passbench.settings import Settings
from passbench.workers.fork_server import STATUS
from passbench.workers.fork_server_client import Launcher, environment
from passbench.workers.one_gpu import device_inside, one_gpu

_SIGNALS = {s.value: s.name for s in signal.Signals}
_TAIL_BYTES = 2048
_FILE_BYTES = 4 << 30
OWN_FILES = ("home", "tmp", "work")
"""Directories of a box that hold nothing worth keeping."""
_KILL_SECONDS = 10.0
_SPIN_SECONDS = 0.1
"""How long an exchange that is timed is waited for without sleeping: waking up takes up to 0.2 ms, and varies."""


class WorkerDied(Exception):
    """The child is gone, or no longer makes sense; the message says how. It has been killed."""


class WorkerTimeout(Exception):
    """The child did not answer in time. It has been killed."""


class Process:
    """One child. Not for several threads at once.

    `box` is a directory of the child's own, the only one that it may write to: its working directory, home, temporary
    files and compiler caches. `memory_fd` is the descriptor of the shared memory on the CPU.
    """

    def __init__(
        self, device: torch.device, settings: Settings, launcher: Launcher, box: Path, memory_fd: int | None = None
    ) -> None:
        self._settings, self._launcher = settings, launcher
        for name in OWN_FILES:
            (box / name).mkdir(parents=True, exist_ok=True)
        (box.parent / "dev").mkdir(exist_ok=True)
        command_read, self._commands = os.pipe()
        os.set_blocking(self._commands, False)
        self._replies, reply_write = os.pipe()
        lifeline, self._lifeline = os.pipe()
        self._report, report_write = os.pipe()
        output, output_write = os.pipe()
        theirs = (command_read, reply_write, lifeline, report_write, output_write)
        request = Spawn(
            launcher.interpret,
            frozenset(os.sched_getaffinity(0)),
            str(box),
            environment(box, launcher.interpret) | one_gpu(device),
            "namespaces" not in settings.off,
            device_inside(device),
            settings.threads,
            settings.child_memory_bytes,
            settings.host_memory_bytes,
            settings.processes,
            _FILE_BYTES,
            settings.device_memory_share,
            settings.disk_bytes,
            "kernel_memory" not in settings.off,
        )
        try:
            launcher.spawn(request, theirs if memory_fd is None else (*theirs, memory_fd))
        finally:
            for fd in theirs:
                os.close(fd)
        self._poll = select.poll()
        self._poll.register(self._replies, select.POLLIN)
        self._poll.register(self._report, select.POLLIN | select.POLLHUP)
        self._tail: deque[bytes] = deque(maxlen=8)
        self._drain = threading.Thread(target=self._read_output, args=(output,), name="passbench-drain", daemon=True)
        self._drain.start()
        self._alive = True
        self._asked = False
        self.pid: int | None = None  # known after the first answer

    def ask(self, command: Command, timeout: float) -> WorkerReply:
        """Send a command and wait for its reply, up to `timeout` seconds.

        Raises WorkerTimeout or WorkerDied; the child is killed then, with everything that it started.
        """
        return self.timed(command, timeout)[0]

    def timed(self, command: Command, timeout: float, *, spin: bool = False) -> tuple[WorkerReply, int]:
        """As `ask`, with the nanoseconds between sending and the reply by this process's clock. `spin`: wait for the
        reply without sleeping at first."""
        nonce = secrets.randbits(64)
        data = wire.encode_command(nonce, command)
        limit = timeout if self._asked else timeout + self._settings.start_timeout
        deadline = time.monotonic() + limit
        if self.pid is None:
            self._started(deadline, limit)
        begin = time.perf_counter_ns()
        self._write(data, deadline, limit)
        reply = self._receive(nonce, deadline, limit, begin + int(_SPIN_SECONDS * 1e9) if spin else 0)
        return reply, time.perf_counter_ns() - begin

    def give_up(self, reason: str) -> WorkerDied:
        """Kill the child for good; the error to raise."""
        self.kill()
        return WorkerDied(reason)

    @property
    def alive(self) -> bool:
        return self._alive

    def kill(self) -> int | None:
        """End the child and all that it started, and release what belongs to it; its wait status, None if it cannot
        be told. May be called again."""
        if not self._alive:
            return None
        self._alive = False
        os.close(self._lifeline)  # the supervisor sees to the rest
        status = self._last_report()
        for fd in (self._commands, self._replies, self._report):
            os.close(fd)
        self._drain.join(timeout=1.0)
        return status

    def _started(self, deadline: float, limit: float) -> None:
        """Wait for the worker's process id."""
        report = select.poll()
        report.register(self._report, select.POLLIN | select.POLLHUP)
        if not report.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise self._late(limit)
        data = os.read(self._report, STATUS.size)
        pid = STATUS.unpack(data)[0] if len(data) == STATUS.size else 0
        if not pid:
            tail = self._words() or self._launcher.server.last_words()
            raise self.give_up(f"the worker process could not be started: {tail}")
        self.pid = pid

    def _last_report(self) -> int | None:
        """The wait status, once all processes are gone; not waiting for the supervisor, which the kernel takes longer
        to rid of its namespaces."""
        deadline = time.monotonic() + _KILL_SECONDS
        report = select.poll()
        report.register(self._report, select.POLLIN | select.POLLHUP)
        while report.poll(max(0.0, deadline - time.monotonic()) * 1000):
            data = os.read(self._report, STATUS.size)
            if len(data) < STATUS.size:
                break
            (number,) = STATUS.unpack(data)
            if self.pid is not None:
                return number
            self.pid = number
        return None

    def _write(self, data: bytes, deadline: float, limit: float) -> None:
        while data:
            try:
                data = data[os.write(self._commands, data) :]
            except BlockingIOError:  # a child that hangs after an answer of its own making does not read either
                if time.monotonic() > deadline:
                    raise self._late(limit) from None
                select.select([], [self._commands], [], 0.1)
            except BrokenPipeError:
                raise self._died() from None

    def _receive(self, nonce: int, deadline: float, limit: float, spin_until_ns: int) -> WorkerReply:
        try:
            header = self._read(wire.HEADER_BYTES, deadline, limit, spin_until_ns)
            reply, follows = wire.decode_header(header, nonce)
            self._asked = True
            if follows:
                return wire.decode_rest(reply, follows, self._read(wire.rest_bytes(follows), deadline, limit))
        except wire.ProtocolError as error:
            raise self.give_up(str(error)) from None
        return reply

    def _read(self, size: int, deadline: float, limit: float, spin_until_ns: int = 0) -> bytes:
        data = b""
        while len(data) < size:
            spin = time.perf_counter_ns() < spin_until_ns
            ready = self._poll.poll(0 if spin else max(0.0, deadline - time.monotonic()) * 1000)
            if not ready:
                if spin:
                    continue
                raise self._late(limit)
            if any(fd == self._replies and event & select.POLLIN for fd, event in ready):
                data += os.read(self._replies, size - len(data))
            else:
                raise self._died()
        return data

    def _late(self, limit: float) -> WorkerTimeout:
        self.kill()
        return WorkerTimeout(f"no answer within {limit:g} s")

    def _died(self) -> WorkerDied:
        status = self.kill()
        code = None if status is None else os.waitstatus_to_exitcode(status)
        if code is None:
            how = "nothing is known of how"
        else:
            how = f"signal {_SIGNALS.get(-code, -code)}" if code < 0 else f"exit status {code}"
        tail = self._words()
        return WorkerDied(f"the worker process ended ({how})" + (f"; its last output: {tail}" if tail else ""))

    def _words(self) -> str:
        return wire.clean_text(b"".join(self._tail)[-_TAIL_BYTES:])

    def _read_output(self, output: int) -> None:
        """Drain the child's output and keep only its end, so that one that prints gigabytes does no harm."""
        with contextlib.closing(os.fdopen(output, "rb", 0)) as stream:
            while chunk := stream.read(1 << 16):
                self._tail.append(chunk[-_TAIL_BYTES:])
