"""The image's recipe: pinned, small to rebuild, not root. hadolint lints it where there is one."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "Dockerfile.nvidia"


def instructions() -> list[tuple[str, str]]:
    """Keyword and argument of every instruction, continuation lines joined."""
    lines = [line for line in RECIPE.read_text().splitlines() if not line.startswith("#")]
    return re.findall(r"^([A-Z]+) (.+)$", re.sub(r"\\\n\s*", " ", "\n".join(lines)), re.MULTILINE)


def arguments(keyword: str) -> list[str]:
    return [argument for each, argument in instructions() if each == keyword]


def test_what_it_is_built_from_is_pinned():
    for image in arguments("FROM"):
        assert re.search(r":\d+\.\d+\.\d+-", image), image
    installs = [run for run in arguments("RUN") if "pip install" in run]
    assert installs and all("-c constraints.txt" in run for run in installs)


def test_it_does_not_run_as_root_and_starts_without_a_shell():
    assert int(arguments("USER")[-1].split(":")[0]) > 0
    assert json.loads(arguments("ENTRYPOINT")[-1]) == ["passnet"]


def test_a_change_of_the_code_does_not_install_the_dependencies_again():
    listed = instructions()
    everything = listed.index(("COPY", ". ."))
    requirements = next(i for i, (_, argument) in enumerate(listed) if "-r /tmp/requirements.txt" in argument)
    assert requirements < everything
    assert all(argument != "." for _, argument in listed[:requirements])


def test_data_and_environments_stay_out_and_what_is_copied_is_there():
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {"data", ".venv"} <= set(ignored)
    for copied in arguments("COPY")[0].split()[:-1]:
        assert (ROOT / copied).exists()


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint is not installed")
def test_hadolint_finds_nothing():
    done = subprocess.run(["hadolint", str(RECIPE)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
