"""A child process that runs code which nobody trusts, as its parent sees it."""

import contextlib
import importlib
import os
import secrets
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import asdict
from pathlib import Path

import torch

from passbench import wire
from passbench.settings import Settings
from passbench.wire import Command, Reply
from passbench.worker import Start

_BOOT = (
    "import sys; sys.path[:0] = {path!r}\n"
    "from passbench.worker import Start, main\n"
    "main(Start(**{start!r}))\n"
)  # fmt: skip
_PATH = "/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin"
_KEPT = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "LD_LIBRARY_PATH",
    "CC",
    "CXX",
    "CUDA_HOME",
    "TRITON_LIBCUDA_PATH",
)
_SIGNALS = {s.value: s.name for s in signal.Signals}
_TAIL_BYTES = 2048
_FILE_BYTES = 4 << 30


class WorkerDied(Exception):
    """The child is gone, or no longer makes sense; the message says how. It has been killed."""


class WorkerTimeout(Exception):
    """The child did not answer in time. It has been killed."""


class Process:
    """One child. Not for several threads at once.

    `scratch` is a directory of the child's own: its working directory, home, temporary files and compiler caches.
    `fds` are passed on (the CPU arena); `interpret` runs Triton kernels on the CPU.
    """

    def __init__(
        self,
        device: torch.device,
        settings: Settings,
        scratch: Path,
        *,
        fds: tuple[int, ...] = (),
        interpret: bool = False,
    ) -> None:
        self._settings = settings
        command_read, self._commands = os.pipe()
        os.set_blocking(self._commands, False)
        self._replies, reply_write = os.pipe()
        lifeline, self._lifeline = os.pipe()
        start = Start(
            command_read, reply_write, lifeline, str(device), settings.threads, settings.child_memory_bytes, _FILE_BYTES
        )
        for name in ("home", "tmp", "work"):
            (scratch / name).mkdir(parents=True, exist_ok=True)
        try:
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-c", _BOOT.format(path=_import_path(), start=asdict(start))],
                env=_environment(scratch, interpret),
                cwd=scratch / "work",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(command_read, reply_write, lifeline, *fds),
                start_new_session=True,
            )
        finally:
            for fd in (command_read, reply_write, lifeline):
                os.close(fd)
        self._pidfd = os.pidfd_open(self._popen.pid)
        self._poll = select.poll()
        self._poll.register(self._replies, select.POLLIN)
        self._poll.register(self._pidfd, select.POLLIN)
        self._tail: deque[bytes] = deque(maxlen=8)
        self._drain = threading.Thread(target=self._read_output, name="passbench-drain", daemon=True)
        self._drain.start()
        self._alive = True
        self._asked = False

    def ask(self, command: Command, timeout: float) -> Reply:
        """Send a command and wait for its reply, up to `timeout` seconds.

        Raises WorkerTimeout or WorkerDied; the child is killed then, with everything that it started.
        """
        return self.timed(command, timeout)[0]

    def timed(self, command: Command, timeout: float) -> tuple[Reply, int]:
        """As `ask`, with the nanoseconds between sending and the reply by this process's clock."""
        nonce = secrets.randbits(64)
        data = wire.encode_command(nonce, command)
        limit = timeout if self._asked else timeout + self._settings.start_timeout
        deadline = time.monotonic() + limit
        begin = time.perf_counter_ns()
        self._write(data, deadline, limit)
        reply = self._receive(nonce, deadline, limit)
        return reply, time.perf_counter_ns() - begin

    def give_up(self, reason: str) -> WorkerDied:
        """Kill the child for good; the error to raise."""
        self.kill()
        return WorkerDied(reason)

    @property
    def alive(self) -> bool:
        return self._alive

    def kill(self) -> None:
        """End the child and its process group, and release what belongs to it. May be called again."""
        if not self._alive:
            return
        self._alive = False
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.kill()  # it may have left its group
        self._popen.wait()
        for fd in (self._commands, self._replies, self._lifeline, self._pidfd):
            os.close(fd)
        self._drain.join(timeout=1.0)  # a descendant in a session of its own may still hold the pipe

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

    def _receive(self, nonce: int, deadline: float, limit: float) -> Reply:
        try:
            reply, detail = wire.decode_header(self._read(wire.HEADER_BYTES, deadline, limit), nonce)
            self._asked = True
            if not detail:
                return reply
            text, outputs = wire.decode_detail(self._read(wire.DETAIL_BYTES, deadline, limit))
        except wire.ProtocolError as error:
            raise self.give_up(str(error)) from None
        return Reply(reply.code, reply.index, reply.count, reply.device_us, text, outputs)

    def _read(self, size: int, deadline: float, limit: float) -> bytes:
        data = b""
        while len(data) < size:
            ready = self._poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
            if not ready:
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
        self.kill()
        code = self._popen.returncode
        how = f"signal {_SIGNALS.get(-code, -code)}" if code < 0 else f"exit status {code}"
        tail = wire.clean_text(b"".join(self._tail)[-_TAIL_BYTES:])
        return WorkerDied(f"the worker process ended ({how})" + (f"; its last output: {tail}" if tail else ""))

    def _read_output(self) -> None:
        """Drain the child's output and keep only its end, so that one that prints gigabytes does no harm."""
        with self._popen.stdout as stream:
            while chunk := os.read(stream.fileno(), 1 << 16):
                self._tail.append(chunk[-_TAIL_BYTES:])


def _import_path() -> list[str]:
    """Where the child finds our code and its libraries: the directories that this process found them in."""
    names = ("passbench", "torch", "triton", "numpy", "storage")
    files = [importlib.import_module(name).__file__ for name in names]
    return list(dict.fromkeys(str(Path(file).resolve().parent.parent) for file in files))


def _environment(scratch: Path, interpret: bool) -> dict[str, str]:
    """Nothing of the parent's environment but what finds the device and its libraries."""
    env = {name: os.environ[name] for name in _KEPT if name in os.environ}
    env |= {
        "PATH": _PATH,
        "HOME": str(scratch / "home"),
        "TMPDIR": str(scratch / "tmp"),
        "TRITON_CACHE_DIR": str(scratch / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
        "LANG": "C.UTF-8",
    }
    return env | ({"TRITON_INTERPRET": "1"} if interpret else {})
