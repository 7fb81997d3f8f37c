"""`run.py` from another directory: what it starts runs in the checkout, and finds the environment that was meant."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_a_relative_environment_is_that_of_the_directory_one_is_in(tmp_path: Path) -> None:
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import run; print(run.BIN)"
    told = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PASSNET_VENV": "own"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == str(tmp_path / "own" / "bin")
