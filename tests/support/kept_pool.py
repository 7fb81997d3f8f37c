"""A pool of workers that several builds of the tests share. Its server is a warm fork: a new process takes ten seconds
to import all libraries."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import IO, Any

from extraction.pool.client import Pool, server_environment
from extraction.pool.server import PoolSettings
from flows.build.pools import lent
from tests.support.warm_forks import WarmForks, WarmProcess


class _KeptPool(Pool):
    """Goes on after a build's `with`."""

    def __init__(self, forks: WarmForks, **limits: Any) -> None:
        super().__init__(**limits)
        self._forks = forks

    def __exit__(self, *_: object) -> None:
        pass

    def _begun(self, settings: PoolSettings, log: IO[bytes]) -> WarmProcess:
        environment = server_environment(settings)
        its_input, requests = os.pipe()
        replies, its_output = os.pipe()
        process = self._forks.start(
            "from extraction.pool.server import main; main()",
            [json.dumps(asdict(settings))],
            files=(its_input, its_output, log.fileno()),
            environment=environment,
            path=environment["PYTHONPATH"].split(os.pathsep),
        )
        os.close(its_input)
        os.close(its_output)
        process.stdin, process.stdout = os.fdopen(requests, "wb"), os.fdopen(replies, "rb")
        return process


@contextmanager
def kept_pool(forks: WarmForks, **limits: Any) -> Iterator[Pool]:
    """Builds and imports inside the block that ask for these limits, `Pool`'s, take this pool. It starts with the first
    of them."""
    pool = _KeptPool(forks, **limits)
    try:
        with lent(pool):
            yield pool
    finally:
        pool.close()
