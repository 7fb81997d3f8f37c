"""A child process that is replaced when it is no longer healthy, and the memory that it shares with the parent."""

import contextlib
import os
import signal
from pathlib import Path

import torch

from passbench.ipc import shared_memory
from passbench.ipc.messages import Code, Command, Open, Ping, Shut, WorkerReply
from passbench.settings import Settings
from passbench.workers import process_usage
from passbench.workers.fork_server_client import Launcher
from passbench.workers.worker_process import Process, WorkerDied, WorkerTimeout

FIRST_BYTES = {"cpu": 1 << 20, "cuda": 256 << 20}
"""Shared memory that a worker begins with."""
_MOST_AHEAD = 1 << 30
_MOST_IDLE = 512 << 20


class WorkerHandle:
    """A worker and the memory that it shares with the parent. `box` holds its files and compiler caches, which outlive
    a replacement."""

    def __init__(self, device: torch.device, settings: Settings, launcher: Launcher, box: Path) -> None:
        self.device, self.settings, self.launcher, self.box = device, settings, launcher, box
        self.shared = shared_memory.make(FIRST_BYTES[device.type], device)
        self._process: Process | None = None
        self._opened = 0  # bytes of shared memory that the process has mapped
        self.device_bytes = 0  # of GPU memory that the process has been seen to take

    @property
    def memory(self) -> torch.Tensor:
        """The shared memory as a flat tensor of bytes."""
        return self.shared.bytes

    @property
    def alive(self) -> bool:
        """Whether there is a worker, and it has not ended."""
        return self._process is not None and self._process.alive

    def start(self) -> None:
        """Start the worker if there is none alive; returns at once."""
        if self._process is None or not self._process.alive:
            self._process = Process(self.device, self.settings, self.launcher, self.box, self.shared.fd)
            self._opened = self.device_bytes = 0

    def stop(self) -> None:
        """End the worker; the next command starts another."""
        if self._process is not None:
            self._process.kill()

    def recover(self) -> None:
        """After a failure: keep a worker that is still well, and so all that it has loaded; end another."""
        if self._process is not None and self._process.alive:
            with contextlib.suppress(WorkerDied, WorkerTimeout):
                if self._process.ask(Ping(), self.settings.call_timeout).code is Code.OK:
                    return
        self.stop()

    def pause(self) -> None:
        """Let the worker do nothing until `resume`; one that has started processes is ended instead."""
        pid = self._process.pid if self._process is not None and self._process.alive else None
        if pid is None:
            return
        if len(process_usage.family(pid)) > 1:
            self.stop()
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Undo `pause`."""
        if self._process is not None and self._process.alive and self._process.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGCONT)

    def move(self, box: Path) -> None:
        """Work in another directory from now on, with a new worker."""
        self.stop()
        self.box = box

    def reserve(self, size: int) -> None:
        """Make the shared memory at least `size` bytes."""
        if size > self.shared.size:
            self._shut()
            self.shared.grow(max(size, min(2 * self.shared.size, size + _MOST_AHEAD)))

    def shrink(self) -> None:
        """Replace shared memory that has become large by a small one; for a worker that has been stopped."""
        if self.shared.size > _MOST_IDLE:
            self.shared.close()
            self.shared = shared_memory.make(FIRST_BYTES[self.device.type], self.device)

    def release(self) -> None:
        """As `shrink`, for a worker that goes on."""
        if self.shared.size > _MOST_IDLE:
            self._shut()
            self.shrink()

    def _shut(self) -> None:
        """Have the worker let go of the shared memory; one that cannot is replaced."""
        if self._process is not None and self._process.alive and self._opened:
            self._opened = 0
            with contextlib.suppress(WorkerDied, WorkerTimeout):
                if self._process.ask(Shut(), self.settings.call_timeout).code is not Code.OK:
                    self.stop()

    def ask(self, command: Command, timeout: float) -> WorkerReply:
        """Ask the worker, started and with the shared memory open. Raises WorkerDied and WorkerTimeout."""
        return self.timed(command, timeout)[0]

    def timed(self, command: Command, timeout: float, *, spin: bool = False) -> tuple[WorkerReply, int]:
        """As `ask`, with the nanoseconds that the exchange took; see `Process.timed`."""
        self.start()
        if self._opened != self.shared.size:
            reply = self._process.ask(Open(self.shared.handle), self.settings.load_timeout)
            if reply.code is not Code.OK:
                raise self._process.give_up(f"the worker cannot open shared memory: {reply.text}")
            self._opened = self.shared.size
        return self._process.timed(command, timeout, spin=spin)

    def pin(self, cores: set[int]) -> None:
        """Let the worker's main thread run on these cores alone. A dead worker shows in the next exchange, not here."""
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(self._process.pid, cores)

    def unpin(self) -> None:
        """Let the worker's main thread run on all cores again."""
        self.pin(set(range(os.cpu_count() or 1)))

    def pinned(self, cores: set[int]) -> bool:
        """Whether the worker's main thread still runs on these cores alone. True for a worker that has died."""
        try:
            return os.sched_getaffinity(self._process.pid) == cores
        except ProcessLookupError:
            return True

    def close(self) -> None:
        """End the worker and let go of the shared memory."""
        self.stop()
        self.shared.close()
