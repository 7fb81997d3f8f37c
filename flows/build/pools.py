"""Where a build's models and shards are worked on."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from extraction.pool.client import Pool
from extraction.pool.ray_pool import RayPool
from extraction.tracing.limits import MEMORY_MB, PREPARE, TIMEOUT_S
from storage.mirror import Mirror

_STARTED: ContextVar[Pool | None] = ContextVar("started", default=None)


def pool_on(runner: str, mirror: Mirror | None = None, *, workers: int | None, **limits: Any) -> Pool | RayPool:
    """The pool of a runner: "local" for this machine, with `workers` processes (default: one for each core that this
    process may use); "ray" for all nodes of Ray's cluster, with `workers` at a time (default: all its cores), which
    find files through `mirror` if there is one. `limits` are those of `Pool`."""
    if runner == "ray":
        return RayPool(workers=workers, mirror=mirror, **limits)
    pool, started = Pool(workers=workers or len(os.sched_getaffinity(0)), **limits), _STARTED.get()
    return started if started is not None and started.settings == pool.settings else pool


@contextmanager
def started_ahead(workers: int | None) -> Iterator[None]:
    """Starts the workers of a build on this machine, with the limits that a build has by default, and lets them import
    their libraries while the block imports its own; `pool_on` returns them inside the block."""
    with pool_on("local", workers=workers, timeout_s=TIMEOUT_S, memory_mb=MEMORY_MB) as pool:
        pool.warm_up(PREPARE)
        with lent(pool):
            yield


@contextmanager
def lent(pool: Pool) -> Iterator[None]:
    """`pool_on` returns this pool inside the block, wherever its own limits are asked for."""
    token = _STARTED.set(pool)
    try:
        yield
    finally:
        _STARTED.reset(token)
