"""A pool of workers that several builds of the tests share: its server takes ten seconds to import all libraries."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from extraction.pool.client import Pool
from flows.build.pools import lent


class _KeptPool(Pool):
    """Goes on after a build's `with`."""

    def __exit__(self, *_: object) -> None:
        pass


@contextmanager
def kept_pool(**limits: Any) -> Iterator[Pool]:
    """Builds and imports inside the block that ask for these limits, `Pool`'s, take this pool. It starts with the first
    of them."""
    pool = _KeptPool(**limits)
    try:
        with lent(pool):
            yield pool
    finally:
        pool.close()
