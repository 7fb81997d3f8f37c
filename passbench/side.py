"""One side of a comparison: a child process, respawned when it dies, and the arena that it shares with the parent."""

from pathlib import Path

import torch

from passbench import arena
from passbench.process import Process
from passbench.settings import Settings
from passbench.wire import Code, Command, Open, Reply


class Side:
    """A worker and its arena. `scratch` holds its files and compiler caches; they outlive a respawn."""

    def __init__(self, device: torch.device, settings: Settings, scratch: Path, *, interpret: bool = False) -> None:
        self.device, self.settings, self.scratch, self.interpret = device, settings, scratch, interpret
        self.arena = arena.make(1 << 20, device)
        self._process: Process | None = None
        self._opened = 0  # arena size that the process has mapped

    @property
    def memory(self) -> torch.Tensor:
        """The arena as a flat tensor of bytes."""
        return self.arena.bytes

    def start(self) -> None:
        """Start the worker if there is none alive; returns at once."""
        if self._process is None or not self._process.alive:
            fds = () if self.arena.fd is None else (self.arena.fd,)
            self._process = Process(self.device, self.settings, self.scratch, fds=fds, interpret=self.interpret)
            self._opened = 0

    def reserve(self, size: int) -> None:
        """Make the arena at least `size` bytes."""
        if size > self.arena.size:
            self.arena.grow(max(size, 2 * self.arena.size))

    def ask(self, command: Command, timeout: float) -> Reply:
        """Ask the worker, started and with the arena open. Raises WorkerDied and WorkerTimeout."""
        return self.timed(command, timeout)[0]

    def timed(self, command: Command, timeout: float) -> tuple[Reply, int]:
        """As `ask`, with the nanoseconds that the exchange took."""
        self.start()
        if self._opened != self.arena.size:
            reply = self._process.ask(Open(self.arena.handle), self.settings.load_timeout)
            if reply.code is not Code.OK:
                raise self._process.give_up(f"the worker cannot open shared memory: {reply.text}")
            self._opened = self.arena.size
        return self._process.timed(command, timeout)

    def close(self) -> None:
        """End the worker and let go of the arena."""
        if self._process is not None:
            self._process.kill()
        self.arena.close()
