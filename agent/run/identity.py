"""When two runs are the same run: the id under which finished samples are found again, and why others are not."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agent.author import Author
from passbench.settings import Settings
from storage.disk import write_json
from storage.records import Sample
from storage.versions.code_version import CODE_VERSIONS
from storage.versions.provenance import library_versions

_NOTE = "run.json"
"""The file in a run's directory that holds its identity."""


def run_identity(
    author: Author, samples: Sequence[Sample], attempts: int, kind: str, settings: Settings
) -> dict[str, Any]:
    """All that decides what a run measures.

    `kind` of device is "cpu" or "cuda": which devices, and how many, changes nothing.
    """
    return {
        "samples": sorted([s.sample, *(v.variant_hash for v in s.variants)] for s in samples),
        "author": [author.name, attempts, *([dict(author.identity)] if author.identity else [])],
        "device": kind,
        "settings": asdict(settings) | {"off": sorted(settings.off)},
        "libraries": library_versions(),
        "code": str(CODE_VERSIONS["evaluate"]),
    }


def run_id(identity: Mapping[str, Any]) -> str:
    """An id that is the same whenever the same would be measured: what is finished under it need not be repeated."""
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return f"{identity['author'][0]}-{digest[:10]}"


def note_identity(directory: Path, identity: Mapping[str, Any]) -> None:
    """Keep the identity in the run's directory, for `why_not_continued` of later runs. Raises PassNetError where the
    disk refuses it."""
    write_json(directory / _NOTE, identity, sort_keys=True)


def why_not_continued(runs: Path, identity: Mapping[str, Any]) -> Iterator[str]:
    """For each other run of this author below `runs` that has finished some of these samples: a line that says what
    differs."""
    own, author = run_id(identity), identity["author"][0]
    for directory in sorted(runs.glob(f"{author}-*")):
        finished = sum(1 for _ in directory.glob("[!.]*.parquet"))
        if directory.name == own or not finished:
            continue
        note = directory / _NOTE
        if note.exists():
            other = json.loads(note.read_text("utf-8"))
            if other["author"][0] != author:  # distill-static, where this is distill
                continue
            if not {sample[0] for sample in other["samples"]} & {sample[0] for sample in identity["samples"]}:
                continue
            causes = "; ".join(_differences(other, json.loads(json.dumps(identity))))
        else:
            causes = "it does not say what it measured"
        samples = f"{finished} finished sample{'' if finished == 1 else 's'}"
        yield f"{own} does not go on with {directory.name}, which has {samples}: {causes}"


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """What differs between two identities, a part each."""
    for part in sorted(old.keys() | new.keys()):
        a, b = old.get(part), new.get(part)
        if a == b:
            continue
        if part == "samples":
            before, now = ({json.dumps(sample) for sample in samples} for samples in (a, b))
            yield (
                f"samples differ: {len(before & now)} in both, {len(before - now)} in that run alone, "
                f"{len(now - before)} in this one alone"
            )
        elif isinstance(a, dict) and isinstance(b, dict):
            names = (name for name in sorted(a.keys() | b.keys()) if a.get(name) != b.get(name))
            yield from (f"{part} {name} was {a.get(name)}, is {b.get(name)}" for name in names)
        else:
            yield f"{part} was {a}, is {b}"
