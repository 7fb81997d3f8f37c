"""Samples as tasks in Harbor's layout, which trainers and evaluators of agents read as they are.

    NAME/instruction.md              the contract and the task
    NAME/task.toml                   limits; the verifier has a container of its own
    NAME/environment/Dockerfile      the agent's container, and what the verifier's is a fresh copy of
    NAME/tests/test.sh, tests/sample the verifier, and what it verifies with
    NAME/solution/solve.sh           a known pass, if there is one

Of what the agent leaves, only `/workspace/pass` crosses to the verifier. It writes reward.json, with the reward alone.
"""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

from agent.learning.reward import unfit
from agent.learning.verify import keep_sample
from agent.llm.prompt import SYSTEM
from agent.llm.task import describe_graphs
from passbench.contract import NAMES_FILE
from storage.disk import disk_error, filling
from storage.errors import PassNetError
from storage.records import Sample

ORGANISATION = "passnet"
IMAGE = "passnet:latest"
"""The image that `Dockerfile.nvidia` builds."""
PASSES = "/workspace/pass"

_TOML = """\
schema_version = "1.4"
artifacts = ["{passes}"]

[task]
name = "{organisation}/{name}"
description = "Write a compiler pass that makes this graph faster."
keywords = ["triton", "compiler", "{category}"]

[metadata]
category = "{category}"
family_hash = "{family}"
split = "{split}"
variants = {variants}

[agent]
timeout_sec = 3600.0

[verifier]
timeout_sec = 1800.0
environment_mode = "separate"

[environment]
build_timeout_sec = 1800.0
cpus = 4
memory_mb = 32768
storage_mb = 20480
gpus = 1

[solution]
"""

_TEST = """\
#!/bin/bash
# Writes /logs/verifier/reward.json: {{"reward": R}}, R from 0 to 1. Other places are for trying it out.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
exec python3 -m agent.learning.verify --sample "$here/sample" --passes "${{PASSNET_PASSES:-{passes}}}" \\
    --out "${{PASSNET_REWARD:-/logs/verifier/reward.json}}"
"""


def write_task(sample: Sample, directory: Path, files: Mapping[str, str] | None = None, image: str = IMAGE) -> None:
    """Write a task to a new directory, whole or not at all; `files` is a known pass, for solve.sh.

    Raises PassNetError if the directory is there already or cannot be written, and for files that are no pass.
    """
    if directory.exists():
        raise PassNetError(f"{directory} exists already: give a new directory")
    if files and (reason := unfit(files)):
        raise PassNetError(f"the pass for {sample.sample} cannot be written: {reason}")
    try:
        with filling(directory) as place:
            (place / "environment").mkdir()
            (place / "instruction.md").write_text(instruction(sample), "utf-8")
            (place / "task.toml").write_text(_toml(sample), "utf-8")
            (place / "environment" / "Dockerfile").write_text(f"FROM {image}\nWORKDIR /workspace\n", "utf-8")
            keep_sample(sample, place / "tests" / "sample")
            _script(place / "tests" / "test.sh", _TEST.format(passes=PASSES))
            if files:
                (place / "solution").mkdir()
                _script(place / "solution" / "solve.sh", solution(files))
    except OSError as error:
        raise disk_error(error, directory, "another directory") from error


def instruction(sample: Sample) -> str:
    """What the agent is told: the contract of a pass, where to put it, the task."""
    contract = SYSTEM.partition("# How to work")[0].rstrip()
    how = (
        f"# How to work\nWrite the files of the pass to `{PASSES}/`, {NAMES_FILE} among them; that directory alone is "
        f"judged. `passnet check {PASSES}` says whether the policy allows it. The reward is s / (1 + s), s the "
        "geometric mean of the speedups; it is 0 unless every variant is right at t = -5."
    )
    return f"{contract}\n\n{how}\n\n# The task\n{describe_graphs(sample)}\n"


def solution(files: Mapping[str, str]) -> str:
    """solve.sh: writes a pass. `PASSNET_PASSES` may name another directory."""
    lines = ["#!/bin/bash", "set -eu", f'place="${{PASSNET_PASSES:-{PASSES}}}"', 'mkdir -p "$place"']
    lines += [f'printf %s {shlex.quote(text)} > "$place/{name}"' for name, text in files.items()]
    return "\n".join(lines) + "\n"


def _toml(sample: Sample) -> str:
    return _TOML.format(
        passes=PASSES,
        organisation=ORGANISATION,
        name=sample.sample,
        category=sample.category,
        family=json.dumps(sample.family_hash)[1:-1],
        split=sample.split,
        variants=len(sample.variants),
    )


def _script(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")
    path.chmod(0o755)
