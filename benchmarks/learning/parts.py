"""Processes that do a part of the work each, as forks of one that has imported what they need: a new interpreter takes
four seconds of a core. PassBench's processes in them are forks of one, too."""

import socket
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from passbench.workers.fork_server_client import shared_server
from passbench.workers.preloaded_forks import forks_with

_FORKS = forks_with("passbench.bench", "torch._dynamo", "triton")


def begun(part: Callable[..., object], *given: Any) -> BaseProcess:
    """A process that calls `part` with what is given, and ends with this one at the latest. `part` is a function of a
    module, and all is pickled."""
    process = _FORKS.Process(target=_be, args=(shared_server().lend(), part, given), daemon=True)
    process.start()
    return process


def _be(server: tuple[Path, socket.socket], part: Callable[..., object], given: tuple[Any, ...]) -> None:
    shared_server().borrow(*server)
    part(*given)
