"""Shared memory of one size and age for all workers that are timed beside each other (`Settings.equal_memory`).

A worker's memory grows when a batch needs more, and eager's may have grown in another variant than a candidate's. In
one call of a table on an H100 eager was 4 to 45 % faster than itself as a candidate in 16 of 33 variants whose inputs
took more than 256 MB, and in none that took less (benchmarks/passbench/h100_table_276).
"""

from collections.abc import Sequence

from passbench.workers.worker_handle import FIRST_BYTES, WorkerHandle

_STEP = 64 << 20
_MORE = 4 / 3
"""A later batch of the same size has up to a third more calls."""


def make_equal(workers: Sequence[WorkerHandle], needed: int) -> bool:
    """Replace the shared memory of all workers by new memory of one size, where they have not that already or have less
    than `needed` bytes. What was in it is lost, and what was captured with it. Returns whether it was replaced."""
    sizes = {worker.shared.size for worker in workers}
    if len(sizes) == 1 and needed <= min(sizes):
        return False
    size = FIRST_BYTES[workers[0].device.type]
    if needed > size:
        size = -(-int(needed * _MORE) // _STEP) * _STEP
    if workers[0].device.type == "cpu":
        size = max(size, *sizes)  # its memory is a file that cannot shrink
    for worker in workers:
        worker.renew(size)
    return True
