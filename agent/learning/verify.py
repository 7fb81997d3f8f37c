"""The verifier of a task in Harbor's layout: judges a pass directory and writes the reward, and nothing else.

    python -m agent.learning.verify --sample /tests/sample --passes /workspace/pass --out /logs/verifier/reward.json

The file holds {"reward": R} with R of `agent.learning.reward`. No pass directory earns 0. Exit status 0 unless the
verifier itself does not work: then there is no reward, and one line says why.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from agent.learning.reward import CHECK_ONLY, SETTINGS, Reward, reward_of
from passbench.bench import Bench
from passbench.settings import Settings
from storage.errors import PassNetError
from storage.parquet import read_rows, write_rows
from storage.records import Sample, Variant
from storage.schema import SUBGRAPHS

_ABOUT, _VARIANTS = "sample.json", "variants.parquet"


def keep_sample(sample: Sample, directory: Path) -> None:
    """Write a sample to a new directory, for `kept_sample`."""
    directory.mkdir(parents=True)
    about = {k: getattr(sample, k) for k in ("sample", "family_hash", "category", "split", "rarity", "reason")}
    (directory / _ABOUT).write_text(json.dumps(about, indent=1) + "\n", "utf-8")
    write_rows(directory / _VARIANTS, [variant.to_row() for variant in sample.variants], SUBGRAPHS)


def kept_sample(directory: Path) -> Sample:
    """The sample that is kept there. Raises PassNetError where there is none."""
    if not (directory / _ABOUT).is_file():
        raise PassNetError(f"{directory} has no {_ABOUT}: export the task again")
    about = json.loads((directory / _ABOUT).read_text("utf-8"))
    rows = read_rows(directory / _VARIANTS, SUBGRAPHS)
    return Sample(variants=tuple(Variant.from_row(row) for row in rows), **about)


def settings_of(device: str) -> Settings:
    """How a verifier judges on a device: on a CPU as few calls as correctness needs."""
    return CHECK_ONLY if device == "cpu" else SETTINGS


def main(given: Sequence[str] | None = None) -> int:
    """Judge, and write the reward."""
    parser = argparse.ArgumentParser(
        prog="python -m agent.learning.verify",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sample", type=Path, required=True)
    parser.add_argument("--passes", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args(given)
    try:
        sample = kept_sample(arguments.sample)
        reward = Reward(0.0, None, "compile_error", f"there is no {arguments.passes}")
        if arguments.passes.is_dir():
            with Bench(arguments.device, settings_of(arguments.device)) as bench:
                reward = reward_of(list(bench.run(sample, "pass", arguments.passes)))
    except PassNetError as error:
        print(f"verify: {error}", file=sys.stderr)
        return 1
    print(f"reward {reward.value:.4f}: {reward.status} {reward.reason}".rstrip())
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps({"reward": reward.value}) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
