"""Catalogues: which models to trace, one entry a line. Reading one checks everything and imports no model library's
models.

A line `points: 3` of a catalogue file says at how many shape points its subgraphs are wanted (`points_of`).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from extraction.sources import graph_directories, registry, task_heads
from storage.errors import PassNetError

QUICKSTART = "quickstart.txt"
"""The packaged catalogue: a convolutional, a transformer and a hybrid side of timm, six modalities of transformers."""

HEADS = "transformers-heads"
"""The catalogue of `extraction.sources.task_heads`."""


@dataclass(frozen=True, order=True)
class Entry:
    """One model of a catalogue. `text` is its canonical line; parsing that gives the entry again."""

    text: str
    source: str
    name: str
    revision: str = ""


def parse_entry(line: str) -> Entry:
    """The entry that a line such as `timm:resnet18` or `hub:org/name@main` names.

    Raises PassNetError saying what is wrong and what is expected. Whether the model exists is not asked here.
    """
    source, colon, name = line.strip().partition(":")
    expected = f"expected one of {', '.join(e.form for e in registry.FORMS.values())}"
    if not colon or source not in registry.FORMS:
        what = f"{source!r} is not a source" if colon else f"{line.strip()!r} does not name a source"
        raise PassNetError(f"{what}; {expected}")
    form = registry.FORMS[source]
    match = re.fullmatch(form.pattern, name.strip())
    if not match:
        raise PassNetError(f"{name.strip()!r} is not a name of source {source}; expected {form.form}")
    found = match.groupdict()
    revision = found.get("revision") or ""
    return Entry(f"{source}:{match[0]}", source, found["name"], revision)


def read_catalog(catalog: str, limit: int | None = None) -> list[Entry]:
    """The entries of a catalogue, without duplicates, in its order, at most `limit` of them.

    `catalog` is `quickstart`, `timm` (its whole registry), `transformers` (the base model of every model type),
    `transformers-heads` (the task heads of those used most, see `extraction.sources.task_heads`), `hub` or
    `hub?KEY=VALUE&…` (a listing, see `extraction.sources.hub_models.listing`; needs a limit), the path of a list file,
    or a directory with graphs in PassNet's or GraphNet's layout. Raises PassNetError for any other name, and for each
    bad line of a file with its number; all lines are checked before this returns.
    """
    if limit is not None and limit < 1:
        raise PassNetError(f"--limit {limit} leaves no model to trace; give a number of 1 or more")
    if catalog == "quickstart":
        entries = _parse_lines(_quickstart_lines(), "the quickstart catalogue")
    elif isinstance(source := registry.SOURCES.get(catalog.partition("?")[0]), registry.ConfigSource):
        name, _, query = catalog.partition("?")
        entries = [parse_entry(f"{name}:{model}") for model in source.listing(query, limit)]
    elif catalog == HEADS:
        entries = [parse_entry(f"transformers:{name}") for name in _all_names("transformers", task_heads.names)]
    elif isinstance(source, registry.ModelSource):
        entries = [parse_entry(f"{catalog}:{name}") for name in _all_names(catalog, source.names)]
    elif Path(catalog).is_dir():
        entries = _of_directory(Path(catalog))
    else:
        entries = _read_file(Path(catalog))
    unique = list(dict.fromkeys(entries))
    return unique[:limit]


def points_of(catalog: str) -> int | None:
    """How many shape points a catalogue wants of each subgraph whose sizes may change; None where it does not say.

    `catalog` is as for `read_catalog`, which checks it.
    """
    if catalog == "quickstart":
        lines = _quickstart_lines()
    elif catalog not in registry.SOURCES and Path(catalog).is_file():
        lines = Path(catalog).read_text("utf-8").splitlines()
    else:
        return None
    said = [match for line in lines if (match := _POINTS.fullmatch(_without_comment(line)))]
    return int(said[-1][1]) if said else None


_POINTS = re.compile(r"points:\s*(.*)")


def _quickstart_lines() -> list[str]:
    return resources.files("extraction.sources").joinpath(QUICKSTART).read_text("utf-8").splitlines()


def _without_comment(line: str) -> str:
    return line.partition("#")[0].strip()


def _all_names(source: str, names: Callable[[], list[str]]) -> list[str]:
    try:
        return names()
    except ImportError as error:
        raise PassNetError(
            f"the catalogue {source!r} needs the package {registry.SOURCES[source].library} ({error}); "
            "install passnet with its pipeline extra"
        ) from error


def _of_directory(path: Path) -> list[Entry]:
    entries = [parse_entry(f"dir:{directory}") for directory in graph_directories.directories(path)]
    if not entries:
        raise PassNetError(
            f"{path} has no model.py anywhere below it; give a directory in PassNet's or GraphNet's layout"
        )
    return entries


def _read_file(path: Path) -> list[Entry]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        whole = (registry.ModelSource, registry.ConfigSource)
        named = [name for name, source in registry.SOURCES.items() if isinstance(source, whole)]
        choices = ", ".join(["quickstart", *named, HEADS])
        raise PassNetError(
            f"there is no catalogue {str(path)!r}; choose {choices}, or give the path of a list file or directory"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise PassNetError(f"the catalogue file {path} cannot be read: {error}") from None
    entries = _parse_lines(lines, str(path))
    if not entries:
        raise PassNetError(f"the catalogue file {path} has no entries; write one a line, such as timm:resnet18")
    return entries


def _parse_lines(lines: list[str], where: str) -> list[Entry]:
    entries, problems = [], []
    for number, line in enumerate(lines, 1):
        text = _without_comment(line)
        if not text:
            continue
        if match := _POINTS.fullmatch(text):
            if not re.fullmatch(r"[1-9]\d*", match[1]):
                problems.append(f"{where}, line {number}: {text!r} is not a number of shape points, such as points: 3")
            continue
        try:
            entry = parse_entry(text)
        except PassNetError as error:
            problems.append(f"{where}, line {number}: {error}")
        else:
            entries.append(entry)
    if problems:
        more = f" ({len(problems) - 1} more bad lines)" if len(problems) > 1 else ""
        raise PassNetError(problems[0] + more)
    return entries
