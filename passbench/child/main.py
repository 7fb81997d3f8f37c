"""The child's main: serves the parent's commands, and answers with fixed-size structs.

It runs in a fork of `passbench.workers.fork_server`.
"""

import gc
import os
import resource
from collections.abc import Iterator

import torch
from torch import fx

from passbench.child.interpreter import triton_interpreter
from passbench.child.worker import Worker
from passbench.contract import PassRule
from passbench.ipc.messages import (
    ArmReplay,
    Command,
    Go,
    Stage,
    Wake,
)
from passbench.ipc.spawn import Spawn
from passbench.ipc.wire import encode_reply, read_command
from passbench.matching.rewrite import apply_pass


def _limit(spawn: Spawn) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_FSIZE, spawn.file_bytes)
    if spawn.memory_bytes is not None:
        _lower(resource.RLIMIT_AS, spawn.memory_bytes)


def _lower(which: int, limit: int) -> None:
    """Set a limit, or leave the one of the machine (`ulimit -H`) where that is lower: no process may raise it."""
    _, most = resource.getrlimit(which)
    least = limit if most == resource.RLIM_INFINITY else min(limit, most)
    resource.setrlimit(which, (least, least))


def prepare() -> None:
    """Work out what all workers need, before they are forked; a GPU is not touched. torch lists its functions and
    their other names when the first pattern is matched, which takes longer than to match it."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(torch.relu, (x,)))
    apply_pass(graph, [PassRule("prepare", lambda x: torch.relu(x), lambda x: (x,), torch.relu, ("x",))])
    if "TRITON_INTERPRET" in os.environ:
        triton_interpreter.compute_as_a_gpu()


def main(spawn: Spawn, commands: int, replies: int, shared_fd: int | None) -> None:
    """Serve commands until the parent closes its end."""
    _limit(spawn)
    device = torch.device(spawn.device)
    torch.set_num_threads(spawn.threads)
    torch.set_grad_enabled(False)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.cuda.set_per_process_memory_fraction(spawn.device_memory_share)
        torch.cuda.synchronize()
    else:
        triton_interpreter.untimed_autotuning()
        if "TRITON_INTERPRET" in os.environ and spawn.confine_kernels:
            triton_interpreter.confine_kernels()
    gc.freeze()  # collections between calls need not look at torch itself
    worker = Worker(device, shared_fd, confine_kernels=spawn.confine_kernels)
    for nonce, command in _commands(commands, spin=device.type == "cuda"):
        _write(replies, encode_reply(nonce, worker.handle(command)))


def _commands(fd: int, *, spin: bool) -> Iterator[tuple[int, Command]]:
    """The commands as they come. `spin`: what belongs to an exchange that has begun is waited for without sleeping: no
    other worker has its turn before it."""
    begun = False
    while (received := read_command(fd, spin=spin and begun)) is not None:
        begun = isinstance(received[1], Stage | ArmReplay | Wake | Go)
        yield received


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
