"""Workers that a command starts before its imports are the ones that its build uses."""

import os

from extraction.tracing.limits import MEMORY_MB, TIMEOUT_S
from flows.build.pools import pool_on, started_ahead


def test_a_build_with_the_same_limits_takes_the_workers_that_are_started() -> None:
    limits = {"timeout_s": TIMEOUT_S, "memory_mb": MEMORY_MB}
    with started_ahead(1):
        with pool_on("local", workers=1, **limits) as pool:
            assert pool is pool_on("local", workers=1, **limits)
        assert pool is not pool_on("local", workers=2, **limits)
    assert pool is not pool_on("local", workers=1, **limits)


def test_workers_are_as_many_as_the_cores_that_this_process_may_use() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert pool_on("local", workers=None, timeout_s=1.0, memory_mb=1).size == "1 workers"
    finally:
        os.sched_setaffinity(0, before)
