"""The commands about samples: `samples`, `show`, `bench`, `export`."""

import sys
from pathlib import Path
from typing import Any

import click

from flows.cli.options import (
    compiler_option,
    data_option,
    device_option,
    emit,
    flush_option,
    json_option,
    limit_option,
    protocol_option,
    version_option,
)
from flows.cli.samples.bench_checks import check_bench
from storage.schema import CATEGORIES, SPLITS


@click.command()
@click.option("--op", default=None, metavar="NAME", help="Samples with an op whose name holds this, such as relu.")
@click.option("--category", type=click.Choice(CATEGORIES), default=None, help="Samples of one category only.")
@click.option("--split", type=click.Choice(SPLITS), default=None, help="Samples of one split only.")
@limit_option("Show the first N only; the count is of all.", 20)
@data_option
@version_option
@json_option
def samples(
    op: str | None,
    category: str | None,
    split: str | None,
    limit: int,
    data: Path,
    version: str | None,
    as_json: bool,
) -> None:
    """List the samples of a version: id, split, number of variants, ops.

    `passnet show SAMPLE` shows one, `passnet bench SAMPLE` benchmarks it.
    """
    from flows.cli.samples.lists import list_samples
    from flows.cli.samples.texts import samples_text
    from storage.versions.store import Store

    opened = Store(data).open(version)
    found = list_samples(opened, op, category, split)
    document = {"version": opened.name, "op": op, "found": len(found), "samples": found[:limit]}
    emit(document, as_json, samples_text)


@click.command()
@click.argument("sample")
@data_option
@version_option
@json_option
def show(sample: str, data: Path, version: str | None, as_json: bool) -> None:
    """Show one sample.

    It prints its source, its inputs, the models it comes from, and the results so far. SAMPLE is an id, or a prefix
    that fits only it. For files in PassNet's layout see `passnet export`.
    """
    from flows.cli.samples.lists import describe_sample
    from flows.cli.samples.texts import show_text
    from storage.versions.store import Store

    emit(describe_sample(Store(data).open(version), sample), as_json, show_text)


@click.command()
@click.argument("sample")
@click.option("--passes", type=click.Path(path_type=Path), default=None, help="Pass directory, for --compiler pass.")
@compiler_option
@limit_option("Measure the first N variants only.")
@click.option("--dtype", default=None, metavar="NAME", help="Measure the variants in this dtype only, such as float16.")
@data_option
@version_option
@device_option
@protocol_option
@flush_option
@json_option
def bench(
    sample: str,
    as_json: bool,
    data: Path,
    version: str | None,
    passes: Path | None,
    compiler: str | None,
    **parameters: Any,
) -> None:
    """Benchmark a pass or a compiler on one sample.

    SAMPLE is an id, a prefix that fits only it, or a directory in PassNet's layout. The pass of a directory is the
    one in its pass_dir, unless --passes gives another. Exit status 3: the pass matches no variant (status no_match
    on each); the nearest miss is printed below the table.
    """
    check_bench(sample, data, version, passes, compiler)
    from flows.cli.samples.bench import bench_sample
    from flows.cli.samples.texts import bench_text

    done = bench_sample(sample, passes=passes, compiler=compiler, data=data, version=version, **parameters)
    emit(done, as_json, bench_text)
    if not done["matched"]:
        sys.exit(3)


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="[SAMPLE] DIRECTORY")
@click.option(
    "--format",
    "layout",
    type=click.Choice(["passnet", "harbor"]),
    default="passnet",
    show_default=True,
    help="passnet: a sample directory for `bench` and `import`; harbor: a task for agents and their trainers.",
)
@click.option(
    "--split", type=click.Choice(SPLITS), default=None, help="With harbor, and without SAMPLE: all of a split."
)
@click.option(
    "--image", default=None, help="With harbor: the container image that has PassNet [default: passnet:latest]."
)
@limit_option("With harbor and --split: the first N samples only.")
@click.option("--at-most", type=click.IntRange(1), default=None, help="With harbor: N variants of a sample, spread.")
@data_option
@version_option
@json_option
def export(names: tuple[str, ...], layout: str, as_json: bool, **parameters: Any) -> None:
    """Export samples in PassNet's layout, or as tasks for trainers.

    SAMPLE is an id, or a prefix that fits only it. DIRECTORY is a new one.

    With --format harbor and --split, DIRECTORY gets a task for each sample of the split. The best pass that the version
    knows becomes the solution.
    """
    from flows.cli.samples.export import export_sample, export_tasks, export_tasks_text, export_text

    data, version = parameters.pop("data"), parameters.pop("version")
    if len(names) > 2:
        raise click.UsageError("give [SAMPLE] DIRECTORY")
    sample, directory = names[0] if len(names) == 2 else None, Path(names[-1])
    if layout == "harbor":
        emit(export_tasks(sample, directory, data, version, **parameters), as_json, export_tasks_text)
        return
    if sample is None or any(value is not None for value in parameters.values()):
        raise click.UsageError("give a SAMPLE and a new DIRECTORY; --split and the like are for --format harbor")
    emit(export_sample(sample, directory, data, version), as_json, export_text)


COMMANDS = (samples, show, bench, export)
