"""Run authors on samples of a version on this machine; needs torch, triton, numpy, pandas and pyarrow alone.

    python -m agent.run VERSION_DIR --authors eager,inductor,distill --out DIR

Writes DIR/runs/RUN/SAMPLE.parquet (rows of `storage.schema.RESULTS`, a file per sample, as they come), then
DIR/results.parquet, DIR/scores.json, DIR/summary.md and, of distill, DIR/floors.md: how far from the least time each
variant is. Given the same DIR and options again, it goes on where it stopped; where it does not, it says why.
"""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from agent.author import Author, ReadyPasses
from agent.distill.tuned import Tuned
from agent.registry import author as author_named
from agent.run.choose import Choice, chosen
from agent.run.floors import floors
from agent.run.gpu_host import GpuHost
from agent.run.progress import LOGGER
from agent.run.summary import summary
from passbench.bench import Bench
from passbench.score import score_runs
from passbench.settings import Settings
from storage.disk import write_json
from storage.errors import PassNetError
from storage.parquet import write_rows
from storage.records import Sample
from storage.schema import CATEGORIES, RESULTS, SPLITS
from storage.versions.version import Version


def main(given: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; returns the exit status: 0 done, 1 where no sample was run."""
    logging.basicConfig(format="%(message)s", stream=sys.stdout)
    LOGGER.setLevel(logging.INFO)
    parser = _parser()
    arguments = parser.parse_args(given)
    try:
        return _run(arguments)
    except PassNetError as error:
        print(f"agent.run: {error}", file=sys.stderr)
        return 1


def _run(arguments: argparse.Namespace) -> int:
    version = Version.open(arguments.version)
    choice = _choice(arguments)
    if arguments.names is not None:
        _say_what_is_missing(version, choice, arguments.names)
    samples = chosen(version, choice)
    authors = [_author(name, arguments.search) for name in arguments.authors.split(",") if name]
    if arguments.passes is not None:
        authors.append(ReadyPasses(arguments.passes))
    settings = Settings(
        protocol=arguments.protocol, flush_l2=arguments.flush_l2, seed=arguments.seed, repeats=arguments.repeats
    )
    with Bench(arguments.device, settings) as bench:
        host = GpuHost(
            bench,
            arguments.out,
            settings,
            arguments.budget,
            arguments.compile_ahead,
            arguments.lock,
            arguments.write_ahead,
            arguments.write_first,
        )
        runs = host.run(authors, samples)
    runs = {author: rows for author, rows in runs.items() if rows}
    if not runs:
        print("no sample was run: none is chosen, or the budget was over before the first", file=sys.stderr)
        return 1
    _finish(arguments.out, version, samples, runs, host.seconds)
    return 0


def _finish(
    out: Path, version: Version, samples: Sequence[Sample], runs: dict[str, list[dict]], seconds: dict[str, float]
) -> None:
    """Put the runs' rows together, score and describe them."""
    write_rows(out / "results.parquet", [row for rows in runs.values() for row in rows], RESULTS)
    scores = score_runs(runs.values())
    write_json(out / "scores.json", scores, "another --out", indent=1)
    text = summary(f"Samples of the version of digest {version.manifest.digest[:12]}", runs, seconds)
    (out / "summary.md").write_text(text, "utf-8")
    if slow := floors({v.variant_hash: v for sample in samples for v in sample.variants}, runs):
        (out / "floors.md").write_text(slow, "utf-8")
    print(text)


def _author(name: str, search: float | None) -> Author:
    author = author_named(name)
    if search is not None and name == "distill":
        author = replace(Tuned(), seconds=search)
    return author


def _choice(arguments: argparse.Namespace) -> Choice:
    names = None
    try:
        if arguments.names is not None:
            names = frozenset(arguments.names.read_text("utf-8").split())
        if arguments.passes is not None:
            there = frozenset(path.name for path in arguments.passes.iterdir())
            names = there if names is None else names & there
    except (OSError, UnicodeDecodeError) as error:
        raise PassNetError(f"what --names or --passes gives cannot be read: {error}") from error
    return Choice(
        splits=tuple(arguments.split.split(",")),
        categories=tuple(arguments.categories.split(",")),
        names=names,
        limit=arguments.limit,
        each=arguments.each,
        variants=arguments.variants,
        one_a_dtype=arguments.one_a_dtype,
        at_most=arguments.at_most,
        part=arguments.part,
        mixed=arguments.mixed,
    )


def _say_what_is_missing(version: Version, choice: Choice, file: Path) -> None:
    """Print the names of a file that are no samples to take. Raises PassNetError where none of them is one."""
    there = {name for split in choice.splits for name in version.table("samples", split)["sample"].to_pylist()}
    missing = sorted(choice.names - there)
    if not missing:
        return
    some = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
    said = f"{file} names what is no sample in {','.join(choice.splits)} of {version.path}: {some}"
    if len(missing) == len(choice.names):
        raise PassNetError(said)
    print(said, file=sys.stderr)


def _some_of(known: Sequence[str]) -> Callable[[str], str]:
    """A type of argparse: names of `known`, separated by commas."""

    def check(text: str) -> str:
        if unknown := [name for name in text.split(",") if name not in known]:
            raise argparse.ArgumentTypeError(f"there is no {unknown[0]!r}: use {', '.join(known)}")
        return text

    return check


def _count(text: str) -> int:
    """A whole number from 1 on. Raises ArgumentTypeError otherwise."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


def _part(text: str) -> tuple[int, int]:
    """The parts that `I/N` names. Raises ArgumentTypeError for others."""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and int(number) < int(count)):
        raise argparse.ArgumentTypeError(f"{text!r} is no part: the two parts of two are 0/2 and 1/2")
    return int(number), int(count)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m agent.run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("version", type=Path, help="directory of a dataset version")
    add("--authors", default="eager,inductor,distill", help="names, separated by commas; empty for none")
    add("--passes", type=Path, metavar="DIR", help="also run the passes DIR/SAMPLE, on the samples that have one alone")
    add("--split", type=_some_of(SPLITS), default="eval", help="eval, train, or eval,train")
    add("--categories", type=_some_of(CATEGORIES), default=",".join(CATEGORIES))
    add("--names", type=Path, metavar="FILE", help="a file with the names of the samples to take")
    add("--limit", type=_count, metavar="N", help="N samples at most")
    add("--each", type=_count, metavar="N", help="N samples of each category")
    add("--part", type=_part, default=(0, 1), metavar="I/N", help="the I-th of N parts of the samples, from 0")
    add("--variants", type=_count, metavar="N", help="take no further sample behind N variants")
    add("--one-a-dtype", action="store_true", help="the first variant of each dtype of a sample alone")
    add("--at-most", type=_count, metavar="N", help="N variants of a sample, spread over all")
    add("--mixed", action="store_true", help="every beginning of the samples has each category in proportion")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--protocol", default="passnet", choices=("passnet", "paper"))
    add("--flush-l2", action="store_true")
    add("--seed", type=int, help="of inputs, so that two runs draw the same; without it nobody can know them")
    add("--repeats", type=int, help="as many exchanges again where times are noisy; default 3 on a GPU")
    add("--compile-ahead", type=int, default=0, metavar="N", help="N processes compile baselines, 12 samples at a time")
    add("--write-ahead", type=int, default=0, metavar="N", help="N processes write distill's passes, a sample each")
    add(
        "--write-first",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="these processes write for so long at most, and only then is anything timed",
    )
    add("--search", type=float, metavar="SECONDS", help="what distill may spend on measuring a sample")
    add("--budget", type=float, default=3600.0, metavar="SECONDS", help="after these no further sample is begun")
    add("--lock", type=Path, metavar="FILE", help="is locked while timing, so that runs side by side time in turn")
    add("--out", type=Path, required=True)
    return parser


if __name__ == "__main__":
    sys.exit(main())
