"""What a model is built from: a normalised config and its hash. Entries with equal hashes share one trace.

The rule of normalisation is each source's `normalise`; a model is built from the normalised config alone, so that equal
hashes mean equal graphs by construction.
"""

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from typing import Any, Self

from extraction.failures import ModelError
from extraction.sources.catalog import Entry
from extraction.sources.registry import SOURCES, ConfigSource
from storage.errors import PassNetError
from storage.versions.code_version import CODE_VERSIONS

TRACE_VERSION = CODE_VERSIONS["trace"]


@dataclass(frozen=True)
class Spec:
    """A model to build. `config` is JSON text with sorted keys, `libraries` the versions that its graph depends on."""

    source: str
    config: str
    config_hash: str
    libraries: tuple[tuple[str, str], ...]

    @property
    def fields(self) -> dict[str, Any]:
        """The config as data."""
        return json.loads(self.config)

    @property
    def trace_key(self) -> str:
        """Identity of the trace: the config, the libraries and the version of the tracing code (sha256, hex)."""
        return _sha256(json.dumps([self.config_hash, self.libraries, TRACE_VERSION]))

    def to_json(self) -> str:
        """As JSON text; `from_json` reads it."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The spec that `to_json` wrote."""
        fields = json.loads(text)
        fields["libraries"] = tuple((name, version) for name, version in fields["libraries"])
        return cls(**fields)


def spec_of(entry: Entry) -> Spec:
    """The spec of a catalogue entry; nothing is built. Its source is the one that builds the model.

    Raises ModelError: "not_found" for a name that the source does not have, "config" for one without a usable config,
    "missing_dependency" where the source's library is not installed.
    """
    name, source = entry.source, SOURCES[entry.source]
    try:
        if isinstance(source, ConfigSource):
            name, fields = source.resolve(entry.name, entry.revision)
            source = SOURCES[name]
        else:
            fields = source.config(entry.name)
        config = config_text(source.normalise(fields))
    except PassNetError:
        raise
    except Exception as error:  # a library's configs may fail in any way; one of them costs its own model
        from extraction.classify import classify  # seconds to import, and seldom needed

        raise ModelError(*classify(error, "config")) from error
    return _spec(name, config)


@functools.cache
def _spec(source: str, config: str) -> Spec:
    """One object for all entries with a spec: a catalogue of 100,000 fine-tunes has few of them."""
    return Spec(source, config, hash_of(source, config), library_versions(source))


def hash_of(source: str, config: str) -> str:
    """The hash of a source's normalised config, as `config_text` writes it (sha256, hex)."""
    return _sha256(json.dumps([source, config]))


def config_text(normalised: dict[str, Any]) -> str:
    """A normalised config as text: equal configs give equal texts."""
    return json.dumps(normalised, sort_keys=True, separators=(",", ":"))


Specified = Mapping[Entry, Spec | ModelError]
"""Entries with their specs, or why they have none."""


def specified(entries: Sequence[Entry]) -> dict[Entry, Spec | ModelError]:
    """The entries with what `specs_of` says of them."""
    return dict(zip(entries, specs_of(entries), strict=True))


def specs_of(entries: Sequence[Entry]) -> list[Spec | ModelError]:
    """The specs of entries, or why they have none; configs that lie elsewhere are fetched several at a time.

    Raises PassNetError where such a place cannot be reached at all.
    """
    for name, source in SOURCES.items():
        if isinstance(source, ConfigSource):
            source.prefetch([(entry.name, entry.revision) for entry in entries if entry.source == name])
    return [_spec_or_error(entry) for entry in entries]


def _spec_or_error(entry: Entry) -> Spec | ModelError:
    try:
        return spec_of(entry)
    except ModelError as error:
        error.__cause__ = error.__context__ = None
        return error.with_traceback(None)  # frames would keep all that they were at work on


def library_versions(source: str) -> tuple[tuple[str, str], ...]:
    """Names and versions of the libraries that a source's graphs depend on, as far as they are installed."""
    names = sorted({"torch", SOURCES[source].library})
    return tuple((name, _version(name)) for name in names if find_spec(name) is not None)


@functools.cache
def _version(package: str) -> str:
    return metadata.version(package)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
