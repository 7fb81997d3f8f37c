"""What a caller can put right ends a flow run in one line, at its first try; a fault of ours is tried again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flows.evaluate_model import evaluate_model
from storage.errors import PassNetError

ROOT = Path(__file__).resolve().parents[2]

RUNS = """
    from prefect import flow
    from prefect.testing.utilities import prefect_test_harness
    from flows.expected_failures import one_line
    from storage.errors import PassNetError

    class Busy(PassNetError):
        pass

    tries = []

    @flow(retries=1, retry_delay_seconds=0)
    @one_line(Busy)
    def tried(error: str) -> dict:
        tries.append(error)
        raise {"caller": PassNetError, "busy": Busy, "bug": ValueError}[error](f"the message of {error}")

    with prefect_test_harness(server_startup_timeout=150):
        for error in ("caller", "busy", "bug"):
            try:
                tried(error)
            except Exception as raised:
                print("TRIED", error, tries.count(error), type(raised).__name__, raised, flush=True)
"""


def test_a_run_that_its_caller_can_put_right_fails_once_and_in_one_line(tmp_path):
    environment = os.environ | {"PREFECT_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    script = "\n".join(line.removeprefix("    ") for line in RUNS.splitlines())
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=280
    )
    told = [line for line in done.stdout.splitlines() if line.startswith("TRIED")]
    assert told == [
        "TRIED caller 1 PassNetError the message of caller",
        "TRIED busy 2 Busy the message of busy",
        "TRIED bug 2 ValueError the message of bug",
    ], done.stderr[-3000:]
    before = done.stderr.split("the message of busy")[0]
    assert "the message of caller" in before and "Traceback" not in before


def test_outside_of_a_flow_run_it_is_raised(tmp_path):
    with pytest.raises(PassNetError, match="no author"):
        evaluate_model.fn(author="nobody", data=str(tmp_path))
