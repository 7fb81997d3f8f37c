"""`manifest.json`: what a version consists of and where it came from."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

from storage.errors import PassNetError

KINDS = ("build", "evaluate", "import", "rollback")
MAKES_A_DATASET = ("build", "import")
BUILT = ("name", "kind", "created", "git_commit", "git_dirty", "flow_run", "libraries", "parameters", "summary")
"""Fields of a manifest that say how a dataset was built."""
NAME = re.compile(r"v[1-9][0-9]*")
CONFIG_OR_SPLIT = re.compile(r"[A-Za-z0-9_]+")
SHARD_PATH = re.compile(r"data/(?P<config>[A-Za-z0-9_]+)/(?P<split>[A-Za-z0-9_]+)-[0-9]{5}-of-[0-9]{5}\.parquet")
SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Shard:
    """One Parquet file of a version; `path` is relative to the version's directory."""

    config: str
    split: str
    path: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """Contents and provenance of one version."""

    name: str
    parent: str | None
    created: str  # ISO 8601, UTC
    kind: str  # one of KINDS
    digest: str  # identity of the contents, see content_digest
    shards: tuple[Shard, ...]
    flow_run: str | None
    git_commit: str | None
    git_dirty: bool | None
    libraries: dict[str, str]
    parameters: dict[str, Any]
    summary: dict[str, Any]
    built: dict[str, Any] | None = None
    """`BUILT` of the version that made the dataset, where this one adds results to it or rolls back; else None."""

    def rows(self, config: str, split: str | None = None) -> int:
        """Rows of a config, or of one of its splits; 0 where there is none."""
        return sum(s.rows for s in self.shards if s.config == config and split in (None, s.split))


def built_of(parent: Manifest | None, kind: str) -> dict[str, Any] | None:
    """What the manifest of a new version of this kind says of how its dataset was built: None for one that builds."""
    if kind in MAKES_A_DATASET or parent is None:
        return None
    if parent.kind in MAKES_A_DATASET:
        return {name: getattr(parent, name) for name in BUILT}
    return parent.built


def content_digest(shards: Iterable[Shard]) -> str:
    """Identity of a version's contents: SHA-256 over config, split and SHA-256 of every shard, in order."""
    listed = [[shard.config, shard.split, shard.sha256] for shard in shards]
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()


def plain_json(value: Mapping[str, Any]) -> dict[str, Any]:
    """`value` as JSON gives it back: paths and dates become text, NaN and infinities become null."""
    return json.loads(json.dumps(value, default=str), parse_constant=lambda _: None)


def dump(manifest: Manifest) -> str:
    """The text of `manifest.json`."""
    return json.dumps(asdict(manifest), indent=1, allow_nan=False) + "\n"


def parse(text: str, where: Path) -> Manifest:
    """Read `manifest.json`; `where` is for messages alone.

    Raises PassNetError when a field is missing, unknown or of the wrong type, and when a shard's path is anything
    but `data/<config>/<split>-00000-of-0000N.parquet`.
    """
    try:
        return _manifest(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise PassNetError(
            f"{where} is not a manifest that this PassNet reads ({error}): rebuild the version, "
            "or open it with the PassNet that wrote it"
        ) from error


def shard_path(root: Path, shard: Shard) -> Path:
    """Absolute path of a shard of the version at `root`.

    Raises PassNetError when the path leads out of that directory, through `..` or a link.
    """
    path = (root / shard.path).resolve()
    if not SHARD_PATH.fullmatch(shard.path) or not path.is_relative_to(root.resolve()):
        raise PassNetError(f"{root}/{shard.path} leads outside the version: use a copy that holds its own files")
    return path


def _manifest(data: Any) -> Manifest:
    _check_fields(data, Manifest, "manifest")
    shards = tuple(_shard(item) for item in _typed(data, "shards", list))
    manifest = Manifest(
        name=_matching(data, "name", NAME),
        parent=None if data["parent"] is None else _matching(data, "parent", NAME),
        created=_typed(data, "created", str),
        kind=_typed(data, "kind", str),
        digest=_matching(data, "digest", SHA256),
        shards=shards,
        flow_run=_typed(data, "flow_run", str, None),
        git_commit=_typed(data, "git_commit", str, None),
        git_dirty=_typed(data, "git_dirty", bool, None),
        libraries=_typed(data, "libraries", dict),
        parameters=_typed(data, "parameters", dict),
        summary=_typed(data, "summary", dict),
        built=_typed(data, "built", dict, None) if "built" in data else None,
    )
    if manifest.kind not in KINDS:
        raise ValueError(f"kind {manifest.kind!r} is none of {', '.join(KINDS)}")
    if len({shard.path for shard in shards}) != len(shards):
        raise ValueError("a shard is listed twice")
    if manifest.digest != content_digest(shards):
        raise ValueError("its digest is not that of its shards")
    return manifest


def _shard(data: Any) -> Shard:
    _check_fields(data, Shard, "shard")
    shard = Shard(
        config=_matching(data, "config", CONFIG_OR_SPLIT),
        split=_matching(data, "split", CONFIG_OR_SPLIT),
        path=_typed(data, "path", str),
        rows=_typed(data, "rows", int),
        bytes=_typed(data, "bytes", int),
        sha256=_matching(data, "sha256", SHA256),
    )
    parts = SHARD_PATH.fullmatch(shard.path)
    if not parts or (parts["config"], parts["split"]) != (shard.config, shard.split):
        raise ValueError(f"shard path {shard.path!r} is not data/{shard.config}/{shard.split}-NNNNN-of-NNNNN.parquet")
    if shard.rows < 0 or shard.bytes < 0:
        raise ValueError(f"shard {shard.path} has a negative size")
    return shard


def _check_fields(data: Any, of: type, what: str) -> None:
    if not isinstance(data, dict):
        raise ValueError(f"{what} is not an object")
    names = {field.name for field in fields(of)}
    needed = {field.name for field in fields(of) if field.default is MISSING}
    if missing := sorted(needed - data.keys()):
        raise ValueError(f"{what} lacks {', '.join(missing)}")
    if unknown := sorted(data.keys() - names):
        raise ValueError(f"{what} has unknown {', '.join(unknown)}")


def _typed(data: dict[str, Any], key: str, *kinds: type | None) -> Any:
    value = data[key]
    if type(value) not in [type(None) if kind is None else kind for kind in kinds]:  # bool is no int here
        raise ValueError(f"{key} is {type(value).__name__}")
    return value


def _matching(data: dict[str, Any], key: str, pattern: re.Pattern[str]) -> str:
    value = _typed(data, key, str)
    if not pattern.fullmatch(value):
        raise ValueError(f"{key} {value[:80]!r} is malformed")
    return value
