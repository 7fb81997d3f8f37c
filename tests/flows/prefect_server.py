"""A real Prefect server and process worker on loopback, for tests."""

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

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
TABLES = ROOT / "tests" / "support" / "prefect_tables.sql"
"""What the migrations of Prefect 3.8.8 make of an empty database, as SQLite's `.dump` of a server's `prefect.db` tells
it. A server makes its tables in six seconds of processor time; it finds these, and runs later migrations alone."""


class Prefect:
    """Runs `prefect` commands against the server."""

    def __init__(self, home: Path, port: int) -> None:
        self.environment = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "PREFECT_HOME": str(home),
            "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            # A schedule that is added to a deployment is planned by this loop alone, after a minute by default.
            "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "2",
            "PREFECT_SERVER_SERVICES_SCHEDULER_MAX_RUNS": "3",  # of each schedule, and not of 100 days
            "PREFECT_CLI_COLORS": "false",
        }

    def __call__(self, *arguments: str, timeout: float = 240) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, "-m", "prefect", "--no-prompt", *arguments],
            cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=timeout,
        )  # fmt: skip

    @contextmanager
    def background(self, log: Path, *arguments: str) -> Iterator[subprocess.Popen]:
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "prefect", *arguments], cwd=ROOT, env=self.environment,
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                yield process
            finally:
                process.terminate()
                process.wait(60)


@contextmanager
def prefect_server(home: Path) -> Iterator[Prefect]:
    """A server with its own database under `home`, ready to answer."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with closing(sqlite3.connect(home / "prefect.db")) as database:
        database.executescript(TABLES.read_text())
    prefect = Prefect(home, port)
    log = home / "server.log"
    with prefect.background(log, "server", "start", "--host", "127.0.0.1", "--port", str(port), "--no-ui") as server:
        deadline = time.monotonic() + 90
        while not _healthy(port):
            assert server.poll() is None and time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.3)
        yield prefect


def _healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health", timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False
