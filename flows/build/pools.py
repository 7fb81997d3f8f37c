"""Where a build's models and shards are worked on."""

import os
from typing import Any

from extraction.pool.client import Pool
from extraction.pool.ray_pool import RayPool


def pool_on(runner: str, *, workers: int | None, **limits: Any) -> Pool | RayPool:
    """The pool of a runner: "local" for this machine, with `workers` processes (default: one a core); "ray" for all
    nodes of Ray's cluster, with `workers` at a time (default: all its cores). `limits` are those of `Pool`."""
    if runner == "ray":
        return RayPool(workers=workers, **limits)
    return Pool(workers=workers or os.cpu_count() or 1, **limits)
