"""A real Prefect server and process worker on loopback, for tests. Commands run in warm forks, the server does not."""

import os
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.support.processes import alive
from tests.support.warm_forks import WarmForks, WarmProcess

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
TABLES = ROOT / "tests" / "support" / "prefect_tables.sql"
"""What the migrations of Prefect 3.8.8 make of an empty database, as SQLite's `.dump` of a server's `prefect.db` tells
it. A server makes its tables in six seconds of processor time; it finds these, and runs later migrations alone."""

COMMAND = """
from prefect.context import refresh_global_settings_context
refresh_global_settings_context()
from prefect.cli import app
app()
"""
"""`python -m prefect` in a fork that has read its settings from another environment."""


class Prefect:
    """Runs `prefect` commands against the server."""

    def __init__(self, home: Path, port: int, forks: WarmForks) -> None:
        self._forks = forks
        self.environment = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "PREFECT_HOME": str(home),
            "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
            # A schedule that is added to a deployment is planned by this loop alone, after a minute by default.
            "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "2",
            "PREFECT_SERVER_SERVICES_SCHEDULER_MAX_RUNS": "3",  # of each schedule, and not of 100 days
            "PREFECT_CLI_COLORS": "false",
        }

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess:
        return self._forks.run(COMMAND, ["--no-prompt", *arguments], environment=self.environment, directory=ROOT)

    @contextmanager
    def background(self, log: Path, *arguments: str) -> Iterator[WarmProcess]:
        with open(os.devnull, "rb") as null, log.open("w") as output:
            files = (null.fileno(), output.fileno(), output.fileno())
            process = self._forks.start(COMMAND, arguments, files=files, environment=self.environment, directory=ROOT)
            try:
                yield process
            finally:
                process.terminate()
                process.wait(60)


@contextmanager
def prefect_server(home: Path, forks: WarmForks) -> Iterator[Prefect]:
    """A server with its own database under `home`, ready to answer."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with closing(sqlite3.connect(home / "prefect.db")) as database:
        database.executescript(TABLES.read_text())
    prefect = Prefect(home, port, forks)
    log = home / "server.log"
    with prefect.background(log, "server", "start", "--host", "127.0.0.1", "--port", str(port), "--no-ui") as server:
        deadline = time.monotonic() + 90
        while not _healthy(port):
            assert alive(server.pid) and time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.3)
        yield prefect


def _healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health", timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False
