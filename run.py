#!/usr/bin/env python3
"""Set PassNet up in .venv on first use, then run one thing in it. Needs Python 3.11 or later and nothing else.

    python3 run.py quickstart [OPTIONS]     the main job: build a dataset, evaluate authors on it, publish the results
    python3 run.py test [PYTEST OPTIONS]    the tests; all of them, in parallel, without options
    python3 run.py test --quick [OPTIONS]   those that take seconds: pure functions and formats, no models, no workers
    python3 run.py lint                     ruff's checks
    python3 run.py passnet COMMAND ...      any other `passnet` command
    python3 run.py setup                    the environment alone

PASSNET_VENV names another directory than .venv.
"""

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = Path(os.environ.get("PASSNET_VENV", ROOT / ".venv")).absolute()  # commands run in ROOT
BIN = VENV / "bin"
ALL_TESTS = ("-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder")

QUICK_TESTS = """test_architecture.py test_image.py storage/graph/test_symbols.py storage/graph/test_render.py
    storage/graph/test_targets.py storage/layout/test_layout_meta.py storage/test_parquet.py storage/test_records.py
    storage/test_columns.py storage/versions/test_versions.py dedup/test_signatures.py passbench/test_score.py
    passbench/test_score_by_hand.py passbench/scoring passbench/policy passbench/checking/test_tolerance.py
    passbench/test_contract.py passnet flows/report/test_score.py flows/test_artifacts.py flows/test_progress.py
    flows/cli/test_samples.py flows/cli/test_bad_inputs.py""".split()
"""What `test --quick` runs, below tests/: files that trace no model, start no pool of workers and no server. A file
joins when it takes a few seconds, and leaves when all of these take longer than 90 seconds on two quiet cores."""


def main(arguments: list[str]) -> int:
    if sys.version_info < (3, 11):
        print(f"PassNet needs Python 3.11 or later; this is {sys.version.split()[0]}", file=sys.stderr)
        return 1
    command, *rest = arguments or ["help"]
    commands = {
        "setup": [],
        "quickstart": [BIN / "passnet", "quickstart", *rest],
        "passnet": [BIN / "passnet", *rest],
        "test": [BIN / "python", "-m", "pytest", *tests(rest)],
        "lint": [BIN / "ruff", "check", *(rest or ["."])],
    }
    if command not in commands:
        wanted = command in ("help", "-h", "--help")
        print(__doc__ if wanted else f"there is no command {command!r}\n\n{__doc__}")
        return 0 if wanted else 2
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each process would compile torch and all else anew: 7 s of import
    try:
        set_up()
        return subprocess.call(commands[command], cwd=ROOT) if commands[command] else 0
    except subprocess.CalledProcessError as error:
        print(
            f"setting up {VENV} failed (exit {error.returncode}): see the lines above; the package registry must be "
            "reachable, 8 GB of disk free, and Python's venv and ensurepip there (Debian: python3-venv)",
            file=sys.stderr,
        )
        return 1
    except OSError as error:
        print(f"setting up {VENV} failed ({error}): PASSNET_VENV names another place", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def tests(options: list[str]) -> list[str]:
    """pytest's arguments for the options of `run.py test`."""
    if "--quick" not in options:
        return options or list(ALL_TESTS)
    rest = [option for option in options if option != "--quick"]
    return [*ALL_TESTS, *(f"tests/{name}" for name in QUICK_TESTS), *rest]


def set_up() -> None:
    """Make the environment, unless it is already as pyproject.toml and constraints.txt say, for this checkout: its
    `passnet` runs the code of one."""
    files = [(ROOT / n).read_bytes() for n in ("pyproject.toml", "constraints.txt")]
    wanted = hashlib.sha256(b"".join([*files, str(ROOT).encode()])).hexdigest()
    stamp = VENV / "passnet-setup"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"setting up {VENV} (about 6 GB, a minute or two; once)", file=sys.stderr, flush=True)
    if not (BIN / "python").exists():
        venv.create(VENV, with_pip=True)
    python = str(BIN / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", "constraints.txt"]
    what = ["-c", "constraints.txt", "-e", ".[pipeline,dev]"]
    subprocess.run([*pip, "uv"], cwd=ROOT, check=True)
    fast = [str(BIN / "uv"), "pip", "install", "--quiet", "--compile-bytecode", "--python", python, *what]
    if subprocess.call(fast, cwd=ROOT) != 0:  # a registry that only pip is configured for
        subprocess.run([*pip, *what[2:]], cwd=ROOT, check=True)
    stamp.write_text(wanted)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
