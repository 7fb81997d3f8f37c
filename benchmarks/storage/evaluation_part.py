"""The evaluation split of a version as a version of its own, for a repository that cannot hold all of it.

    python -m benchmarks.storage.evaluation_part --version DIR --out OUT

OUT/version has the models and the evaluation rows of DIR; its train split is empty. OUT/whole_manifest.json and
OUT/whole_card.md are the manifest and the card of all of it.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

from storage.schema import CATEGORIES
from storage.versions.store import Store
from storage.versions.version import Version


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    whole = Version.open(arguments.version)
    tables = {("models", "all"): whole.table("models")}
    for config in (*CATEGORIES, "samples"):
        held = whole.table(config, "eval")
        tables |= {(config, "eval"): held, (config, "train"): held.slice(0, 0)}
    told = {**whole.manifest.parameters, "evaluation_split_of": whole.manifest.digest}
    rows = {category: tables[category, "eval"].num_rows for category in CATEGORIES}
    summary = {"models": tables["models", "all"].num_rows, "subgraphs": rows}
    summary["samples"] = {"eval": tables["samples", "eval"].num_rows}
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.out) as scratch:
        part, _ = Store(scratch).publish(tables, kind="build", parent=None, parameters=told, summary=summary)
        shutil.copytree(part.path, arguments.out / "version")
    shutil.copy(whole.path / "manifest.json", arguments.out / "whole_manifest.json")
    shutil.copy(whole.path / "README.md", arguments.out / "whole_card.md")


if __name__ == "__main__":
    main()
