"""One version of the dataset, opened from its directory: what it holds, its rows, whether its files are whole."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from storage.disk import check_regular
from storage.errors import PassNetError
from storage.versions.manifest import Manifest, Shard, parse, shard_path
from storage.versions.shards import config_schema, damaged, file_sha256, read_shard

MAX_MANIFEST = 64 << 20
"""Most bytes of a manifest; one of 100,000 shards has 25 million."""


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
            check_regular(file, MAX_MANIFEST)
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PassNetError(
                f"{path} is not a dataset version: cannot read {file.name} ({error}); "
                "give the directory of one, such as data/versions/v1"
            ) from error
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
        verify: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Stream the rows of a config, of one split or of all, in the config's schema; nothing where absent.

        Page checksums are always verified; with `verify` so is each shard's SHA-256, before its first row.
        Raises PassNetError for an unknown config or column, and, while streaming, naming a corrupt file.
        """
        schema = config_schema(config)
        if unknown := [name for name in columns or () if name not in schema.names]:
            raise PassNetError(f"config {config} has no column {unknown[0]!r}: it has {', '.join(schema.names)}")
        if filter is not None:
            schema.empty_table().filter(filter)  # one that does not fit the schema fails here, not as a corrupt file
        shards = [s for s in self.manifest.shards if s.config == config and split in (None, s.split)]
        paths = (self.verify_shard(s) if verify else shard_path(self.path, s) for s in shards)
        return (batch for path in paths for batch in read_shard(path, config, columns, filter))

    def shard_batches(self, shard: Shard) -> Iterator[pa.RecordBatch]:
        """Stream the rows of one shard of the manifest. Raises PassNetError naming a corrupt file."""
        return read_shard(shard_path(self.path, shard), shard.config)

    def table(
        self,
        config: str,
        split: str | None = None,
        columns: Sequence[str] | None = None,
        verify: bool = False,
    ) -> pa.Table:
        """All rows of a config or split as one table; an empty one where absent. As `batches` otherwise."""
        schema = config_schema(config)
        batches = list(self.batches(config, split, columns, verify=verify))
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
            check_regular(path)
            if path.stat().st_size == shard.bytes and file_sha256(path) == shard.sha256:
                return path
            problem = "is corrupt"
        except FileNotFoundError:
            problem = "is missing"
        except OSError as error:
            problem = f"cannot be read ({error.strerror})"
        raise damaged(path, problem)
