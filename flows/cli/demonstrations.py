"""Demonstrations from a version's results as a dataset that `load_dataset` reads, for `passnet demonstrations`."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from agent.learning.dataset import write_dataset
from agent.learning.demonstrations import COLUMNS, DEMONSTRATIONS, Solved, demonstrations
from agent.learning.leaks import HeldOut
from flows.plurals import causes_text, counted
from flows.report.results import find_runs
from storage.errors import PassNetError
from storage.versions.samples import load_samples
from storage.versions.store import Store
from storage.versions.version import Version

SPLITS = ("train", "validation")

NAME = "Compiler passes that work"
CARD = """\
{rows} from real models, each with a pass that PassBench found right at t = -5, of {families}. No family,
op sequence or text of an evaluation sample is among them, no two rows have the same graph, and no family is in two
splits. Made by `passnet demonstrations` from {version}, runs {runs}.

Left out: {causes}.

Rows are licensed under Apache 2.0. They hold operators and shapes of the models that `models` names, no weights.

| column | meaning |
|---|---|
{columns}
"""


def export_demonstrations(
    out: str | Path,
    data: str | Path,
    version: str | None = None,
    runs: Sequence[str] = ("latest",),
    held_out: Sequence[str | Path] = (),
    unmeasured: bool = False,
) -> dict:
    """Write the demonstrations of these runs to the new directory `out`; says what was left out, and why.

    `runs` as `passnet score` takes them; `held_out` are directories of further versions whose evaluation samples count
    too. `unmeasured` lets in what no GPU timed. Raises PassNetError if `out` is there, for unknown runs, and if nothing
    is left.
    """
    out, opened = Path(out), Store(data).open(version)
    if out.exists():
        raise PassNetError(f"{out} exists already: give a new directory")
    wanted = sorted({run for name in runs for run in find_runs(opened, name)})
    versions = [opened, *(Version.open(place) for place in held_out)]
    held = HeldOut.of(sample for each in versions for sample in load_samples(each, "eval"))
    causes: Counter[str] = Counter()
    rows: dict[str, list[dict]] = {split: [] for split in SPLITS}
    for split, row in demonstrations(_solved(opened, wanted), held, causes, unmeasured):
        rows[split].append(row)
    found = [row for split in SPLITS for row in rows[split]]
    left_out = causes_text(dict(causes.most_common()))
    if not found:
        raise PassNetError(
            f"no pass in {opened.name} is left to learn from (left out: {left_out}); make some with "
            "`passnet evaluate --author readable --split train`"
        )
    card = CARD.format(
        rows=counted(len(found), "task"),
        families=counted(len({row["family_hash"] for row in found}), "family", "families"),
        version=opened.name,
        runs=", ".join(wanted),
        causes=left_out,
        columns="\n".join(f"| `{name}` | {meaning} |" for name, _, meaning in COLUMNS),
    )
    write_dataset(out, NAME, card, rows, DEMONSTRATIONS)
    splits = {split: len(rows[split]) for split in SPLITS if rows[split]}
    families = len({row["family_hash"] for row in found})
    return {"path": str(out), "splits": splits, "families": families, "left_out": dict(causes)}


def demonstrations_text(done: dict) -> str:
    """What was written, in one line."""
    splits = ", ".join(f"{count} {split}" for split, count in done["splits"].items())
    families = counted(done["families"], "family", "families")
    return f"{splits} in {done['path']}, of {families}; left out: {causes_text(done['left_out'])}"


def _solved(version: Version, runs: Sequence[str]) -> Iterator[Solved]:
    """The attempts of these runs at training samples, the first attempt of each author at a sample."""
    attempts: dict[tuple, list[dict]] = {}
    for batch in version.batches("results"):
        for row in batch.to_pylist():
            if row["run"] in runs:
                attempts.setdefault((row["sample"], row["run"], row["attempt"]), []).append(row)
    samples = {sample.sample: sample for sample in load_samples(version)}
    for (name, *_), rows in sorted(attempts.items(), key=lambda item: item[0]):
        files = {file["path"]: file["content"] for file in rows[0]["pass_files"] or ()}
        yield Solved(samples[name], files, rows)
