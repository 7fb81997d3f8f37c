"""Runs `passnet` as a user does: in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PASSNET = str(Path(sys.executable).parent / "passnet")


def passnet(*arguments: object, timeout: float = 280, **environment: str) -> subprocess.CompletedProcess:
    """The finished process, with its output as text."""
    return subprocess.run(
        [PASSNET, *map(str, arguments)],
        env=os.environ | environment, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip


def passnet_json(*arguments: object, **environment: str) -> dict[str, Any]:
    """The JSON document that a command prints; the command must succeed."""
    done = passnet(*arguments, "--json", **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def error_line(done: subprocess.CompletedProcess) -> str:
    """The one line with which a command failed, progress aside."""
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("passnet: ")]
    assert len(lines) == 1, done.stderr
    return lines[0]
