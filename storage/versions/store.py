"""Versions of the dataset on disk: immutable directories in the Hub's layout, published by one atomic rename.

ROOT/versions/v1/{README.md, manifest.json, data/<config>/<split>-00000-of-00001.parquet}
ROOT/versions/.lock          held while a name is picked and a version renamed into place
ROOT/versions/.staging/ID/   a version in the making; its `lock` is held for as long as its publisher lives
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from storage.disk import flush, flush_tree
from storage.errors import PassNetError
from storage.schema import CATEGORIES, CONFIGS
from storage.versions import card
from storage.versions.manifest import (
    CONFIG_OR_SPLIT,
    KINDS,
    NAME,
    Manifest,
    Shard,
    built_of,
    content_digest,
    dump,
    plain_json,
)
from storage.versions.provenance import git_state, library_versions
from storage.versions.shards import LIMITS, Rows, ShardLimits, config_schema, write_split
from storage.versions.staging import link_or_copy, locked, make_read_only, staging
from storage.versions.version import Version

__all__ = ["Store", "Version"]


class Store:
    """The versions below a data directory, which is created when the first one is published."""

    def __init__(self, root: Path | str, limits: ShardLimits = LIMITS) -> None:
        self.root = Path(root)
        self.limits = limits
        self._versions = self.root / "versions"

    def versions(self) -> list[Version]:
        """All versions, oldest first."""
        return [self.open(name) for name in self.names()]

    def latest(self) -> Version | None:
        """The newest version; None where there is none."""
        names = self.names()
        return self.open(names[-1]) if names else None

    def open(self, name: str | None = None) -> Version:
        """The version of that name, or the newest. Raises PassNetError that lists what exists."""
        names = self.names()
        if not names:
            raise PassNetError(f"{self.root} {self._without_versions()}")
        name = names[-1] if name is None else name
        if name not in names:
            raise PassNetError(f"{self.root} has no version {name!r}: it has {', '.join(names)}")
        if not (self._versions / name / "manifest.json").exists():
            raise PassNetError(f"{self._versions / name} has lost its manifest.json: restore it, or delete {name}")
        version = Version.open(self._versions / name)
        if version.name != name:
            raise PassNetError(f"{version.path} is a copy of {version.name}: move it out of {self._versions}")
        return version

    def _without_versions(self) -> str:
        """Why there are none, and what to do. Who names a version's own directory is told its data directory."""
        place = self.root.absolute()
        if (place / "manifest.json").exists() and place.parent.name == "versions":
            return f"is a version itself: give --data {place.parent.parent} --version {place.name}"
        if (place / "manifest.json").exists():
            name = Version.open(place).name
            return f"is the version {name} itself: copy it to DATA/versions/{name} and give --data DATA"
        if place.name == "versions" and Store(place.parent).names():
            return f"holds the versions of a data directory: give --data {place.parent}"
        return f"has no dataset version yet: run `passnet build --data {self.root}`"

    @contextmanager
    def updating(self) -> Iterator[Version | None]:
        """The newest version, while other users of `updating` wait: for publishing rows added to those it has.

        Without it, two that publish at the same time from one parent each leave out the other's rows.
        """
        with locked(self._versions, ".updating"):
            yield self.latest()

    def publish(
        self,
        tables: Mapping[tuple[str, str], Rows],
        *,
        kind: str,
        parent: Version | None,
        keep: Iterable[str] = (),
        parameters: Mapping[str, Any],
        summary: Mapping[str, Any],
        flow_run: str | None = None,
    ) -> tuple[Version, bool]:
        """Publish a version made of `tables`, {(config, split): rows}, and of the parent's configs named in `keep`.

        Returns the version and True; or, when its shards are all those of the parent (without a parent: of the newest
        version), that one and False. Rows may be streamed: memory holds a row group at a time.
        Raises PassNetError when rows, disk or parent are at fault; nothing is visible then.
        """
        kept = _kept_shards(parent, set(keep), tables)
        _check_request(tables, kept, kind)
        base = parent or self._newest_readable()
        about = {
            "kind": kind,
            "flow_run": flow_run,
            "parameters": plain_json(parameters),
            "summary": plain_json(summary),
        }
        with staging(self._versions) as place:
            shards, shared = self._write(tables, kept, base, place)
            if base is not None and shared and content_digest(shards) == base.manifest.digest:
                return base, False
            return self._publish_staged(place, shards, parent, about), True

    def rollback(self, name: str) -> tuple[Version, bool]:
        """Publish the contents of an earlier version as the newest one; versions in between stay as they are.

        Returns the new version and True; or the newest and False where that has these contents already.
        Raises PassNetError where there is no such version, or it is damaged.
        """
        with locked(self._versions, ".updating"):
            old, newest = self.open(name), self._newest_readable()
            if newest is not None and newest.manifest.digest == old.manifest.digest:
                return newest, False
            about = {"kind": "rollback", "flow_run": None, "parameters": {"to": name}, "summary": {}}
            with staging(self._versions) as place:
                _link_shards(old, old.manifest.shards, place)
                return self._publish_staged(place, old.manifest.shards, old, about), True

    def _publish_staged(
        self, place: Path, shards: Iterable[Shard], parent: Version | None, about: Mapping[str, Any]
    ) -> Version:
        """Give the staged directory the next version's name. The rename makes all of it visible at once."""
        commit, dirty = git_state()
        shards = tuple(shards)
        with locked(self._versions):
            names = self.names()
            manifest = Manifest(
                name=f"v{int(names[-1][1:]) + 1 if names else 1}",
                parent=None if parent is None else parent.name,
                created=datetime.now(UTC).isoformat(timespec="seconds"),
                digest=content_digest(shards),
                shards=shards,
                git_commit=commit,
                git_dirty=dirty,
                libraries=library_versions(),
                built=built_of(None if parent is None else parent.manifest, about["kind"]),
                **about,
            )
            _complete(Version(place, manifest))
            place.rename(self._versions / manifest.name)
            flush(self._versions)
        return self.open(manifest.name)

    def _write(
        self, tables: Mapping[tuple[str, str], Rows], kept: list[Shard], base: Version | None, place: Path
    ) -> tuple[list[Shard], bool]:
        """Shards of the new version, in order, and whether each is a file of `base`."""
        written: list[Shard] = []
        shared: list[bool] = []
        for (config, split), rows in tables.items():
            shards = write_split(rows, config, split, place, self.limits)
            shared += [_share(shard, base, place) for shard in shards]
            written += shards
        _link_shards(base, kept, place)
        order = {config: index for index, config in enumerate(CONFIGS)}
        return sorted(written + kept, key=lambda shard: (order[shard.config], shard.path)), all(shared)

    def _newest_readable(self) -> Version | None:
        """The newest version, or None when it is damaged: a rebuild is what puts that right."""
        try:
            return self.latest()
        except PassNetError:
            return None

    def names(self) -> list[str]:
        """Names of all versions, oldest first, readable or not. Raises PassNetError for an unreadable directory."""
        try:
            names = [path.name for path in self._versions.iterdir() if NAME.fullmatch(path.name)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise PassNetError(f"cannot read {self._versions} ({error.strerror}): choose another --data") from error
        return sorted(names, key=lambda name: int(name[1:]))


def _kept_shards(parent: Version | None, keep: set[str], tables: Mapping[tuple[str, str], Rows]) -> list[Shard]:
    if twice := sorted(keep & {config for config, _ in tables}):
        raise PassNetError(f"config {twice[0]} is both kept from the parent and written anew: choose one")
    return [shard for shard in parent.manifest.shards if shard.config in keep] if parent else []


def _check_request(tables: Mapping[tuple[str, str], Rows], kept: list[Shard], kind: str) -> None:
    if kind not in KINDS:
        raise PassNetError(f"a version's kind is one of {', '.join(KINDS)}, not {kind!r}")
    if not tables and not kept:
        raise PassNetError("there is nothing to publish: no tables are given and none are kept")
    for config in [config for config, _ in tables] + [shard.config for shard in kept]:
        config_schema(config)
    for config, split in tables:
        if split == card.UNSPLIT and len([other for other, _ in tables if other == config]) > 1:
            raise PassNetError(f"config {config} has a split {split!r}, which is for unsplit configs, beside others")
        if not CONFIG_OR_SPLIT.fullmatch(split):
            raise PassNetError(f"{split!r} cannot be a split's name: use letters, digits and underscores")


def _link_shards(source: Version | None, shards: Iterable[Shard], place: Path) -> None:
    """Make shards of a version part of a staged one. Raises PassNetError naming the first that is damaged."""
    for shard in shards:
        target = place / shard.path
        target.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(source.verify_shard(shard), target)


def _share(shard: Shard, base: Version | None, place: Path) -> bool:
    """Replace a new shard by the base's file with the same bytes, if there is one and it is intact."""
    twins = [twin for twin in base.manifest.shards if twin.sha256 == shard.sha256] if base else []
    for twin in twins:
        try:
            source = base.verify_shard(twin)
        except PassNetError:  # the new file is what mends it
            continue
        link_or_copy(source, place / shard.path)
        return True
    return False


def _example(version: Version) -> card.CardExample | None:
    """The first row of the config that the card opens with, and the sample that it belongs to."""
    config = card.main_config(version.manifest)
    if config not in CATEGORIES:
        return None
    batch = next(iter(version.batches(config, columns=["variant_hash", "code", "inputs", "sources"])))
    (row,) = batch.slice(0, 1).to_pylist()
    for samples in version.batches("samples", columns=["sample", "category", "variants"]):
        for each in samples.to_pylist():
            if each["category"] == config and row["variant_hash"] in (each["variants"] or ()):
                return card.CardExample(row, each["sample"])
    return card.CardExample(row, None)


def _complete(version: Version) -> None:
    """Add the card and the manifest to a staged version and flush it all."""
    text = card.render(version.manifest, version.table("scores"), _example(version))
    (version.path / "README.md").write_text(text, encoding="utf-8")
    (version.path / "manifest.json").write_text(dump(version.manifest), encoding="utf-8")
    for shard in version.manifest.shards:
        make_read_only(version.path / shard.path)
    flush_tree(version.path)
