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


def test_a_place_where_no_environment_can_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environment = {**os.environ, "PASSNET_VENV": str(tmp_path / "file" / "own")}
    told = subprocess.run([sys.executable, ROOT / "run.py", "setup"], env=environment, capture_output=True, text=True)
    assert told.returncode == 1 and told.stderr.splitlines()[1].endswith("PASSNET_VENV names another place"), told
