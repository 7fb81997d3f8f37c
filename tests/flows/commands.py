"""Runs `passnet` as a user does: in a process of its own, or in this one where that is all the same."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from flows.cli.main import main

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


_FORKS = """
import json, os, signal, sys
import flows.build_dataset
from flows.cli.main import main
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forks that end are gone
for line in sys.stdin:
    arguments, said = json.loads(line)
    pid = os.fork()
    if pid == 0:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(0, 1)
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT), 2)
        main(arguments, prog_name="passnet")
    print(pid, flush=True)
"""


@contextmanager
def passnet_forks() -> Iterator[Callable[..., int]]:
    """A function that starts `passnet` and returns at once. It takes a file for what is said on standard error and the
    arguments, and returns the number of a process with a session of its own.

    All are forks of one process, which imports for five seconds.
    """
    with subprocess.Popen(
        [sys.executable, "-c", _FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as one:

        def start(said: Path, *arguments: object) -> int:
            one.stdin.write(json.dumps([[*map(str, arguments)], str(said)]) + "\n")
            one.stdin.flush()
            return int(one.stdout.readline())

        yield start
        one.stdin.close()


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
