"""The commands about versions: list and verify, compare, roll back, collect garbage, copy to and from a URL."""

import sys
from dataclasses import asdict
from pathlib import Path

import click

from flows.cli.options import data_option, emit, json_option, version_option
from flows.plurals import counted
from storage.errors import PassNetError


def existing(data: Path) -> Path:
    """The data directory. Raises PassNetError where there is none: a slip of the pen is not an empty dataset."""
    if data.exists() and not data.is_dir():
        raise PassNetError(f"{data} is a file: give a directory as --data")
    if not data.is_dir():
        raise PassNetError(
            f"{data} is no directory: give another --data, or make it with `passnet build --data {data}`"
        )
    return data


@click.command()
@click.option("--verify", is_flag=True, help="Compare every file with its SHA-256; exit status 1 if one differs.")
@data_option
@json_option
def versions(data: Path, verify: bool, as_json: bool) -> None:
    """List the versions of the dataset.

    A directory that holds none gives an empty list.
    """
    from flows.cli.versions.lists import list_versions
    from flows.cli.versions.texts import versions_text
    from storage.versions.store import Store

    rows = list_versions(Store(existing(data)), verify)
    emit({"versions": rows, "verified": verify}, as_json, versions_text)
    if any(row["problem"] for row in rows):
        sys.exit(1)


@click.command()
@click.argument("v1")
@click.argument("v2")
@data_option
@json_option
def diff(v1: str, v2: str, data: Path, as_json: bool) -> None:
    """Show what changed between two versions.

    It prints the rows added, removed and changed in each config, and the scores side by side.
    """
    from flows.cli.versions.diff import diff_versions
    from flows.cli.versions.texts import diff_text
    from storage.versions.store import Store

    store = Store(existing(data))
    emit(diff_versions(store.open(v1), store.open(v2)), as_json, diff_text)


@click.command()
@click.argument("version")
@data_option
@json_option
def rollback(version: str, data: Path, as_json: bool) -> None:
    """Publish an earlier VERSION again, as the newest one.

    No version is changed or removed.
    """
    from storage.versions.store import Store

    now, created = Store(existing(data)).rollback(version)
    done = {"version": now.name, "contents_of": version, "created": created, "path": str(now.path)}
    note = "" if created else " already"
    emit(done, as_json, lambda d: f"{d['version']} has the contents of {d['contents_of']}{note}: {d['path']}")


@click.command()
@click.option("--keep", type=click.IntRange(1), default=None, metavar="N", help="Remove all but the newest N versions.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@data_option
@json_option
def gc(data: Path, keep: int | None, dry_run: bool, as_json: bool) -> None:
    """Remove files that no version needs.

    It also removes what killed publishers left and, with --keep, old versions.
    """
    from flows.cli.versions.texts import collected_text
    from storage.versions.garbage import collect
    from storage.versions.store import Store

    emit({"dry_run": dry_run, **asdict(collect(Store(existing(data)), keep, dry_run))}, as_json, collected_text)


@click.command()
@click.argument("url")
@data_option
@version_option
@json_option
def upload(url: str, data: Path, version: str | None, as_json: bool) -> None:
    """Copy a version to S3 or another store.

    URL is one that fsspec opens, such as s3://bucket/passnet or file:///mnt/backup. What is there is not sent again; an
    interrupted copy is completed by the next. For the Hub, see `push`.
    """
    from storage.versions.remote import Remote
    from storage.versions.store import Store

    emit(asdict(Remote(url).upload(Store(data).open(version))), as_json, lambda done: _copied(done, "to"))


@click.command()
@click.argument("url")
@data_option
@version_option
@json_option
def download(url: str, data: Path, version: str | None, as_json: bool) -> None:
    """Copy a version from S3 or another store, and verify it.

    URL is one that fsspec opens, such as s3://bucket/passnet. The version keeps its name in the data directory.
    """
    from storage.versions.remote import Remote
    from storage.versions.store import Store

    _, done = Remote(url).download(Store(data), version)
    emit(asdict(done), as_json, lambda done: _copied(done, "from"))


COMMANDS = (versions, diff, rollback, gc, upload, download)


def _copied(done: dict, way: str) -> str:
    files = f"{counted(done['copied'], 'file')} copied, {done['there']} were there"
    return f"{done['version']} {way} {done['url']}: {files}"
