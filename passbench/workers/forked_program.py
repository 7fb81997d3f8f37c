"""A process of ours that is a fork of the server which workers are forks of: it need not import torch."""

import contextlib
import os
import select
import signal
import struct
import sys

from passbench.ipc.spawn import RunModule
from passbench.workers.fork_server import STATUS
from passbench.workers.fork_server_client import shared_server

_END_SECONDS = 30.0


class ForkedProgram:
    """Runs `main` of a module, which is called with the socket of this process's server, for `ForkServer.borrow`.

    `stdin` and `stdout` are its streams of bytes; its errors are ours. `pid` is None where nothing was started. Ctrl-C
    does not reach it: it is to end when its input does.
    """

    def __init__(self, module: str) -> None:
        server = shared_server()
        _, control = server.lend()
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        report, report_end = os.pipe()
        self.stdin, self.stdout = os.fdopen(ours_in, "wb"), os.fdopen(ours_out, "rb")
        program = RunModule(module, [os.path.abspath(entry) for entry in sys.path], os.getcwd())
        try:
            server.send(program, (theirs_in, theirs_out, 2, report_end, control.fileno()))
        finally:
            for fd in (theirs_in, theirs_out, report_end):
                os.close(fd)
        with os.fdopen(report, "rb", 0) as stream:
            said = stream.read(STATUS.size)
        self.pid: int | None = None
        self._end: int | None = None
        with contextlib.suppress(struct.error, ProcessLookupError):
            (self.pid,) = STATUS.unpack(said)
            self._end = os.pidfd_open(self.pid)

    def kill(self) -> None:
        """End it at once; `close` it then."""
        if self._end is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._end, signal.SIGKILL)

    def close(self) -> None:
        """End its input and wait for its end; kill it after half a minute."""
        with contextlib.suppress(OSError):  # it has ended, and not read all
            self.stdin.close()
        if self._end is not None:
            poll = select.poll()
            poll.register(self._end, select.POLLIN)
            if not poll.poll(_END_SECONDS * 1000):
                self.kill()
                poll.poll(_END_SECONDS * 1000)
            os.close(self._end)
            self._end = None
        self.stdout.close()
