"""The commands that find and show samples."""

from pathlib import Path

import click

from flows.cli.options import data_option, emit, json_option, limit_option, version_option
from storage.schema import CATEGORIES, SPLITS


@click.command()
@click.option("--op", default=None, metavar="NAME", help="Samples with an op whose name holds this, such as relu.")
@click.option("--category", type=click.Choice(CATEGORIES), default=None, help="Samples of one category only.")
@click.option("--split", type=click.Choice(SPLITS), default=None, help="Samples of one split only.")
@limit_option("Show the first N of them; they are counted all.", 20)
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
    document = {"version": opened.name, "found": len(found), "samples": found[:limit]}
    emit(document, as_json, samples_text)


@click.command()
@click.argument("sample")
@data_option
@version_option
@json_option
def show(sample: str, data: Path, version: str | None, as_json: bool) -> None:
    """Show one sample: its source, its inputs, the models it comes from, and the results so far.

    SAMPLE is an id, or a prefix that fits only it. In PassNet's layout: `passnet export`.
    """
    from flows.cli.samples.lists import describe_sample
    from flows.cli.samples.texts import show_text
    from storage.versions.store import Store

    emit(describe_sample(Store(data).open(version), sample), as_json, show_text)
