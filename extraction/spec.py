"""What a model is built from: a normalised config and its hash. Entries with equal hashes share one trace.

The rule of normalisation is each source's `normalise`; a model is built from the normalised config alone, so that equal
hashes mean equal graphs by construction.
"""

import functools
import hashlib
import json
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from typing import Any, Self

from extraction.catalog import Entry
from extraction.failures import ModelError
from extraction.sources import SOURCES

TRACE_VERSION = 2
"""Raised when tracing changes what it makes of the same model."""


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
    """The spec of a catalogue entry; nothing is built.

    Raises ModelError: "not_found" for a name that the source does not have, "config" for one without a usable config,
    "missing_dependency" where the source's library is not installed.
    """
    source = SOURCES[entry.source]
    try:
        config = json.dumps(source.normalise(source.config(entry.name)), sort_keys=True, separators=(",", ":"))
    except ModelError:
        raise
    except Exception as error:  # a library's configs may fail in any way; one of them costs its own model
        from extraction.classify import classify  # seconds to import, and seldom needed

        raise ModelError(*classify(error, "config")) from error
    hashed = _sha256(json.dumps([entry.source, config]))
    return Spec(entry.source, config, hashed, library_versions(entry.source))


def library_versions(source: str) -> tuple[tuple[str, str], ...]:
    """Names and versions of the libraries that a source's graphs depend on, as far as they are installed."""
    names = sorted({"torch", SOURCES[source].library})
    return tuple((name, _version(name)) for name in names if find_spec(name) is not None)


@functools.cache
def _version(package: str) -> str:
    return metadata.version(package)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
