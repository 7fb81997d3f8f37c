"""What the fork server is asked for."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Ready:
    """A request for a word when workers can start at once, with Triton's interpreter or without.

    With it travels the descriptor that the word is written to: empty, or why workers are not isolated here.
    """

    interpret: bool


@dataclass(frozen=True)
class RunModule:
    """A request for a process that runs `main` of a module of ours, which is found in the directories `path`. It has
    the server's environment, which is nearly empty, and sees no pass.

    With it travel the descriptors of its standard input, output and errors, that of a pipe for
    its process id, and those that `main` is called with.
    """

    module: str
    path: Sequence[str]
    directory: str


@dataclass(frozen=True)
class Spawn:
    """A request for a worker. `interpret`: with Triton's interpreter. `cores` are those that it keeps to. `box` is the
    directory that it may write to, with its home, temporary files and caches; `environment` replaces the environment;
    `isolate`: in namespaces of its own, where that works. `memory_bytes` of address space are a process's own limit,
    `file_bytes` a file's; `resident_bytes`, `processes` and `disk_bytes` hold for all together. `confine_kernels`:
    interpreted kernels reach the memory of their arguments alone, and compiled ones are compiled with options that a
    pass may have.

    With it travel the descriptors of commands, replies, the parent's lifeline, the supervisor's report, the output,
    and the shared memory's if it has one.
    """

    interpret: bool
    cores: frozenset[int]
    box: str
    environment: dict[str, str]
    isolate: bool
    device: str
    threads: int
    memory_bytes: int | None
    resident_bytes: int
    processes: int
    file_bytes: int
    device_memory_share: float
    disk_bytes: int
    confine_kernels: bool
