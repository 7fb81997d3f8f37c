"""The request for a worker: what its parent sends to the fork server."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Spawn:
    """A request for a worker. `box` is the directory that it may write to, with its home, temporary files and caches;
    `environment` replaces the environment; `isolate`: in namespaces of its own, where that works. `memory_bytes` of
    address space are a process's own limit, `file_bytes` a file's; `resident_bytes`, `processes` and `disk_bytes` hold
    for all together. `confine_kernels`: interpreted kernels reach the memory of their arguments alone,
    and compiled ones are compiled with options that a pass may have.

    With it travel the descriptors of commands, replies, the parent's lifeline, the supervisor's report, the output,
    and the shared memory's if it has one.
    """

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
