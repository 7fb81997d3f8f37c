"""A process that has imported torch and nothing else, and forks others from that state.

A fork starts in a tenth of a second, where a new interpreter takes seconds; and all forks have one layout of memory
and one seed of hashes, which otherwise make two processes of the same code differ by several percent for as long as
they live. It never touches CUDA, which does not survive a fork, and never sees a pass.

Workers are forks of a second process, a zygote, which has imported triton, too. There are two, each with its first
worker: with Triton's interpreter and without, which is decided when triton is imported.

Every worker gets a supervisor, forked first: it is outside the worker's namespaces, ends everything that the worker
has started when the worker ends, ends the worker when PassBench does, and reports the exit status.
"""

import contextlib
import gc
import importlib
import os
import pickle
import select
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

from passbench.ipc.spawn import Ready, RunModule, Spawn
from passbench.workers import isolation, process_usage
from passbench.workers.fork_end import end_after

MESSAGE_BYTES = 1 << 16
WORD_BYTES = 1024
STATUS = struct.Struct("<i")
"""What a supervisor reports, twice: the worker's process id (0: none could be started), then its wait status. A
program reports its process id."""


_DESCRIPTORS = 6
_IMPORTED = (
    "torch.profiler",
    "torch._dynamo",  # the first dispatch mode imports it, over a second in every worker of a pass
    "triton",
    "triton.compiler.code_generator",  # the first launch would import it, with all of Gluon, in every worker
    "triton.runtime.interpreter",
    "triton.backends.nvidia.compiler",
    "triton.backends.nvidia.driver",
    "passbench.child.main",
)
"""What a worker needs; none of it touches CUDA."""

_REAP_SECONDS = 0.005
_LOOK_MS = 250  # between two looks at what the worker takes
_LOOKS_AT_DISK = 8  # one look in so many is at its files, too


def main(control: int, scratch: str) -> None:
    """Serve requests on a Unix socket until the other end closes: each is a pickle of `passbench.ipc.spawn`."""
    gc.disable()  # nothing of an import is garbage, and looking for it takes a fifth of the time
    importlib.import_module("torch")
    gc.freeze()  # forks do not look at it either, which would copy its memory
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forks are reaped by the kernel
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    connection = socket.socket(fileno=control)
    zygotes: dict[bool, socket.socket] = {}
    while True:
        data, fds, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, _DESCRIPTORS)
        if not data:  # also where the other end was killed
            shutil.rmtree(scratch, ignore_errors=True)
            return
        request = pickle.loads(data)
        if not isinstance(request, RunModule):
            _forward(data, fds, request.interpret, zygotes, connection, Path(scratch))
        elif os.fork() == 0:
            for one in (connection, *zygotes.values()):
                one.close()
            _run(request, fds)
        for fd in fds:
            os.close(fd)


def _forward(
    data: bytes,
    fds: list[int],
    interpret: bool,
    zygotes: dict[bool, socket.socket],
    connection: socket.socket,
    scratch: Path,
) -> None:
    """Hand a request to the zygote of its kind, which is forked if there is none, or none any more."""
    if interpret in zygotes:
        try:
            socket.send_fds(zygotes[interpret], [data], fds)
            return
        except (BrokenPipeError, ConnectionResetError):
            zygotes.pop(interpret).close()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        for one in (connection, ours, *zygotes.values()):
            one.close()
        for fd in fds:
            os.close(fd)
        _be_zygote(theirs, interpret, scratch)
    theirs.close()
    zygotes[interpret] = ours
    socket.send_fds(ours, [data], fds)


def _be_zygote(connection: socket.socket, interpret: bool, scratch: Path) -> NoReturn:
    """Import what workers need, and fork them as requests come."""

    def life() -> None:
        if interpret:
            os.environ["TRITON_INTERPRET"] = "1"
        for name in _IMPORTED:
            importlib.import_module(name)
        sys.modules["passbench.child.main"].prepare()
        gc.freeze()
        gc.enable()
        problem = _why_not_isolated(scratch)
        while True:
            data, fds, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, _DESCRIPTORS)
            if not data:
                break
            request = pickle.loads(data)
            if isinstance(request, Ready):
                with contextlib.suppress(BrokenPipeError):  # whoever asked has ended
                    os.write(fds[0], problem.encode()[:WORD_BYTES].ljust(WORD_BYTES))
            elif os.fork() == 0:
                connection.close()
                _supervise(request, fds, isolate=not problem)
            for fd in fds:
                os.close(fd)

    end_after(life)


def _run(program: RunModule, fds: list[int]) -> NoReturn:
    """Be a process of ours that runs a program."""

    def life() -> None:
        for standard, fd in enumerate(fds[:3]):
            os.dup2(fd, standard)
            os.close(fd)
        report, *given = fds[3:]
        os.write(report, STATUS.pack(os.getpid()))
        os.close(report)
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        gc.enable()
        sys.path[:] = program.path
        os.chdir(program.directory)
        importlib.import_module(program.module).main(*given)

    end_after(life)


def _why_not_isolated(scratch: Path) -> str:
    """Try isolation in a fork, whose child is the first in the namespaces; an empty text if it works."""
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            isolation.enter()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            child = os.fork()
            if child == 0:
                isolation.confine(Path(tempfile.mkdtemp(dir=scratch)), [])
            else:
                os.waitpid(child, 0)
        except OSError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        return stream.read().decode("utf-8", "replace")


def _supervise(spawn: Spawn, fds: list[int], *, isolate: bool) -> NoReturn:
    """Start the main, and see to its end."""
    isolate = isolate and spawn.isolate
    commands, replies, lifeline, report, output, *memory = fds
    os.setsid()
    os.sched_setaffinity(0, spawn.cores)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    shared = process_usage.filled_bytes("self")
    try:
        isolation.adopt_orphans()
        if isolate:
            isolation.enter()
        pid = os.fork()
    except OSError as error:
        print(f"isolation failed: {error}", file=sys.stderr, flush=True)
        os.write(report, STATUS.pack(0))
        os._exit(1)
    if pid == 0:
        for fd in (lifeline, report):
            os.close(fd)
        _become_worker(spawn, commands, replies, memory[0] if memory else None, isolate)
    for fd in (commands, replies, *memory):
        os.close(fd)
    os.write(report, STATUS.pack(pid))
    status, excess = _watch(pid, lifeline, spawn, shared)
    if not isolate:  # the kernel ends a namespace with its first process
        _end_descendants()
    if excess:
        print(f"PassBench ended it: {excess}", flush=True)
    for standard in (1, 2):  # now, not when the namespaces are gone: the parent waits for the output's end
        os.dup2(0, standard)
    os.write(report, STATUS.pack(status))
    os._exit(0)


def _watch(pid: int, lifeline: int, spawn: Spawn, shared: int) -> tuple[int, str]:
    """Wait for the worker's end, or end it when the lifeline closes or it takes too much; its wait status, and what
    was too much. `shared`: bytes of memory that it was born with."""
    pidfd = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.register(lifeline, select.POLLIN | select.POLLHUP)
    ready, excess, looks, disk = [], "", 0, process_usage.DiskUse(spawn)
    while not ready and not excess:
        ready = poll.poll(_LOOK_MS)
        if ready or process_usage.at_rest(pid):  # while it waits for its turn, nothing is at work beside what is timed
            continue
        looks += 1
        excess = process_usage.excess(pid, shared, spawn)
        if not excess and looks % _LOOKS_AT_DISK == 0:
            excess = disk.excess()
    if all(fd != pidfd for fd, _ in ready):
        os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1], excess


def _end_descendants() -> None:
    """Kill and reap whatever the worker has left."""
    while True:
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        for pid in process_usage.family(os.getpid())[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_REAP_SECONDS)


def _become_worker(spawn: Spawn, commands: int, replies: int, memory_fd: int | None, isolate: bool) -> NoReturn:
    """The worker's process: confined, limited, with its own environment."""
    from passbench.child import main

    def life() -> None:
        isolation.die_with_parent()
        isolation.die_first()
        os.environ.clear()
        os.environ.update(spawn.environment)
        tempfile.tempdir = None  # chosen anew from the environment
        box = Path(spawn.box)
        if isolate:
            isolation.confine(box.parent / "dev", [box])
            isolation.drop_privileges()
        os.chdir(box / "work")
        main.main(spawn, commands, replies, memory_fd)

    end_after(life)
