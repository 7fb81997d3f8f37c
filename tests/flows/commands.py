"""Runs `passnet` as a user does: in a process of its own, or in this one where that is all the same."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from flows.cli.main import main
from tests.support.warm_forks import WarmForks, WarmProcess

PASSNET = str(Path(sys.executable).parent / "passnet")


def passnet(*arguments: object, timeout: float = 280, **environment: str) -> subprocess.CompletedProcess:
    """The finished process, with its output as text."""
    return subprocess.run(
        [PASSNET, *map(str, arguments)],
        env=os.environ | environment, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip


def passnet_here(*arguments: object) -> subprocess.CompletedProcess:
    """As `passnet`, in this process, which has imported all that takes a new one ten seconds."""
    logger = logging.getLogger("passnet")
    kept = logger.handlers[:], logger.level, logger.propagate
    try:
        result = CliRunner().invoke(main, [*map(str, arguments)], prog_name="passnet")
    finally:
        logger.handlers[:], logger.level, logger.propagate = kept
    if not isinstance(result.exception, SystemExit | None):
        raise result.exception
    return subprocess.CompletedProcess(arguments, result.exit_code, result.stdout, result.stderr)


_BUILD = """
import sys
from pathlib import Path
from extraction.tracing.limits import MEMORY_MB, TIMEOUT_S
from flows.cli.main import main
from tests.support.kept_pool import kept_pool
from tests.support.warm_forks import WarmForks
forks, *arguments = sys.argv[1:]
with kept_pool(WarmForks(Path(forks)), workers=1, timeout_s=TIMEOUT_S, memory_mb=MEMORY_MB):
    main(["build", "--workers", "1", *arguments], prog_name="passnet")
"""


def passnet_build(forks: WarmForks, said: Path, *arguments: object) -> WarmProcess:
    """`passnet build` with one worker, in a process that has a session of its own. What it says on standard error goes
    to a file."""
    with open(os.devnull, "r+b") as null, said.open("wb") as errors:
        files = (null.fileno(), null.fileno(), errors.fileno())
        return forks.start(_BUILD, [str(forks.directory), *map(str, arguments)], files=files)


def passnet_json(*arguments: object, run: Callable[..., subprocess.CompletedProcess] = passnet_here) -> dict[str, Any]:
    """The JSON document that a command prints; the command must succeed."""
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def error_line(done: subprocess.CompletedProcess) -> str:
    """The one line with which a command failed, progress aside."""
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("passnet: ")]
    assert len(lines) == 1, done.stderr
    return lines[0]
