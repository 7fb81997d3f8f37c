"""Versions of the dataset on disk: immutable directories in the Hub's layout, published by one atomic rename.

ROOT/versions/v1/{README.md, manifest.json, data/<config>/<split>-00000-of-00001.parquet}
ROOT/versions/.lock          held while a name is picked and a version renamed into place
ROOT/versions/.staging/ID/   a version in the making; its `lock` is held for as long as its publisher lives
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from storage import card
from storage.errors import PassNetError
from storage.manifest import (
    CONFIG_OR_SPLIT,
    KINDS,
    NAME,
    Manifest,
    Shard,
    content_digest,
    dump,
    parse,
    plain_json,
    shard_path,
)
from storage.provenance import git_state, library_versions
from storage.schema import CONFIGS
from storage.shards import LIMITS, Limits, Rows, config_schema, file_sha256, read_shard, write_split
from storage.staging import flush, flush_tree, link_or_copy, locked, make_read_only, staging


@dataclass(frozen=True)
class Version:
    """One version of the dataset, opened from its directory."""

    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, path: Path | str) -> "Version":
        """Open the version in a directory. Raises PassNetError when its manifest is missing or malformed."""
        path = Path(path)
        file = path / "manifest.json"
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PassNetError(f"{path} is not a dataset version: cannot read {file.name} ({error})") from error
        return cls(path, parse(text, file))

    @property
    def name(self) -> str:
        return self.manifest.name

    def configs(self) -> list[str]:
        """Configs of this version, in the manifest's order."""
        return list(dict.fromkeys(shard.config for shard in self.manifest.shards))

    def splits(self, config: str) -> list[str]:
        """Splits of a config, empty ones included; none where this version has no such config."""
        return list(dict.fromkeys(shard.split for shard in self.manifest.shards if shard.config == config))

    def batches(
        self,
        config: str,
        split: str | None = None,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Stream the rows of a config, of one split or of all, in the config's schema; nothing where absent.

        Raises PassNetError for an unknown config or column, and, while streaming, naming a corrupt file.
        """
        schema = config_schema(config)
        if unknown := [name for name in columns or () if name not in schema.names]:
            raise PassNetError(f"config {config} has no column {unknown[0]!r}: it has {', '.join(schema.names)}")
        if filter is not None:
            schema.empty_table().filter(filter)  # one that does not fit fails here, and no file is blamed for it
        shards = [s for s in self.manifest.shards if s.config == config and split in (None, s.split)]
        return (
            batch for shard in shards for batch in read_shard(shard_path(self.path, shard), config, columns, filter)
        )

    def table(self, config: str, split: str | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows of a config or split as one table; an empty one where absent. Raises as `batches` does."""
        schema = config_schema(config)
        batches = list(self.batches(config, split, columns))
        names = schema.names if columns is None else columns
        return pa.Table.from_batches(batches, pa.schema([schema.field(name) for name in names]))

    def verify(self) -> None:
        """Compare every shard with the manifest. Raises PassNetError naming the first missing or corrupt one."""
        for shard in self.manifest.shards:
            self.verify_shard(shard)

    def verify_shard(self, shard: Shard) -> Path:
        """Path of a shard whose bytes are those that the manifest lists; PassNetError when they are not."""
        path = shard_path(self.path, shard)
        try:
            if path.stat().st_size == shard.bytes and file_sha256(path) == shard.sha256:
                return path
            problem = "is corrupt"
        except FileNotFoundError:
            problem = "is missing"
        except OSError as error:
            problem = f"cannot be read ({error.strerror})"
        raise PassNetError(f"{path} {problem}: restore it, or delete {self.path} and rebuild the version")


class Store:
    """The versions below a data directory, which is created when the first one is published."""

    def __init__(self, root: Path | str, limits: Limits = LIMITS) -> None:
        self.root = Path(root)
        self.limits = limits
        self._versions = self.root / "versions"

    def versions(self) -> list[Version]:
        """All versions, oldest first."""
        return [self.open(name) for name in self._names()]

    def latest(self) -> Version | None:
        """The newest version; None where there is none."""
        names = self._names()
        return self.open(names[-1]) if names else None

    def open(self, name: str | None = None) -> Version:
        """The version of that name, or the newest. Raises PassNetError that lists what exists."""
        names = self._names()
        if not names:
            raise PassNetError(f"{self.root} has no dataset version yet: run `passnet build --data {self.root}`")
        name = names[-1] if name is None else name
        if name not in names:
            raise PassNetError(f"{self.root} has no version {name!r}: it has {', '.join(names)}")
        version = Version.open(self._versions / name)
        if version.name != name:
            raise PassNetError(f"{version.path} is a copy of {version.name}: move it out of {self._versions}")
        return version

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
        parameters, summary = plain_json(parameters), plain_json(summary)
        with staging(self._versions) as place:
            shards, shared = self._write(tables, kept, base, place)
            digest = content_digest(shards)
            if base is not None and shared and digest == base.manifest.digest:
                return base, False
            commit, dirty = git_state()
            with locked(self._versions):
                names = self._names()
                manifest = Manifest(
                    name=f"v{int(names[-1][1:]) + 1 if names else 1}",
                    parent=None if parent is None else parent.name,
                    created=datetime.now(UTC).isoformat(timespec="seconds"),
                    kind=kind,
                    digest=digest,
                    shards=tuple(shards),
                    flow_run=flow_run,
                    git_commit=commit,
                    git_dirty=dirty,
                    libraries=library_versions(),
                    parameters=parameters,
                    summary=summary,
                )
                _complete(Version(place, manifest))
                place.rename(self._versions / manifest.name)
                flush(self._versions)
        return self.open(manifest.name), True

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
        for shard in kept:
            target = place / shard.path
            target.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(base.verify_shard(shard), target)
        order = {config: index for index, config in enumerate(CONFIGS)}
        return sorted(written + kept, key=lambda shard: (order[shard.config], shard.path)), all(shared)

    def _newest_readable(self) -> Version | None:
        """The newest version, or None when it is damaged: a rebuild is what puts that right."""
        try:
            return self.latest()
        except PassNetError:
            return None

    def _names(self) -> list[str]:
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


def _complete(version: Version) -> None:
    """Add the card and the manifest to a staged version and flush it all."""
    (version.path / "README.md").write_text(card.render(version.manifest, version.table("scores")), encoding="utf-8")
    (version.path / "manifest.json").write_text(dump(version.manifest), encoding="utf-8")
    for shard in version.manifest.shards:
        make_read_only(version.path / shard.path)
    flush_tree(version.path)
