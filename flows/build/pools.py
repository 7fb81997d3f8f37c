"""Where a build's models and shards are worked on."""

import os

from extraction.pool.client import Pool
from extraction.pool.ray_pool import RayPool


def pool_on(runner: str, *, workers: int | None, timeout_s: float, memory_mb: int) -> Pool | RayPool:
    """The pool of a runner: "local" for this machine, with `workers` processes (default: one a core); "ray" for all
    nodes of Ray's cluster, with `workers` at a time (default: as many as it has cores)."""
    if runner == "ray":
        return RayPool(workers=workers, timeout_s=timeout_s, memory_mb=memory_mb)
    return Pool(workers=workers or os.cpu_count() or 1, timeout_s=timeout_s, memory_mb=memory_mb)
