"""Processes beside the one that is timed, forked before it opens the GPU."""

import os
from multiprocessing import get_context
from multiprocessing.connection import Connection

import torch

_WORK = 20  # products of matrices: some milliseconds of a core


class Helper:
    """A fork of this process, which has not opened the GPU. It works when it is asked, and waits otherwise."""

    def __init__(self) -> None:
        context = get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._pipe), daemon=True)
        self._process.start()
        theirs.close()

    def pin(self, core: int) -> None:
        """Let it run on this core alone."""
        os.sched_setaffinity(self._process.pid, {core})

    def work(self, device: torch.device) -> None:
        """Have it compute on the host and on the device, and wait until it is done."""
        self._pipe.send(device.type)
        self._pipe.recv()

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _serve(pipe: Connection, others: Connection) -> None:
    """Work when asked, until the other end is closed."""
    others.close()
    while True:
        try:
            device = pipe.recv()
        except EOFError:
            return
        x = torch.randn(128, 128)
        for _ in range(_WORK):
            x = (x @ x).tanh()
        y = x.to(device)
        for _ in range(_WORK):
            y = (y + 1).relu()
        pipe.send(float(y.sum()))
