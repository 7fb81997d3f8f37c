"""One sample by the name that a user gives: an id in a version, or a directory in PassNet's layout."""

from pathlib import Path
from typing import NamedTuple

from dedup.hashes import identify
from extraction.sources.graph_directories import read_variant
from passbench.contract import NAMES_FILE
from storage.errors import PassNetError
from storage.layout.read import GRAPH_LIST, GRAPHS, PASS_DIR, graph_directory, graph_paths, is_sample
from storage.records import Sample
from storage.versions.samples import load_samples
from storage.versions.store import Version


class FoundSample(NamedTuple):
    """A sample, where it was found (a version's name or a directory), and the directory of its own pass,
    if it has one."""

    sample: Sample
    where: str
    passes: Path | None


def find_sample(name: str | Path, version: Version | None) -> FoundSample:
    """The sample of an id, of a prefix that fits only it, or in a directory in PassNet's layout.

    `version` is looked in for ids; it may be None for a directory. Raises PassNetError for what is not there, and for
    a directory of which a graph cannot be read.
    """
    if Path(name).is_dir():
        own = Path(name) / PASS_DIR
        return FoundSample(sample_in(Path(name)), str(name), own if (own / NAMES_FILE).exists() else None)
    if version is None:
        raise PassNetError(f"{name} is no directory: give one in PassNet's layout, or a version that has this sample")
    (found,) = load_samples(version, names=[str(name)])
    return FoundSample(found, version.name, None)


def sample_in(directory: Path) -> Sample:
    """The sample in a directory in PassNet's layout, its variants in the order of graph_list.txt.

    Raises PassNetError where it is no sample or has no graphs, and LayoutError if one of its graphs cannot be read: a
    benchmark of the others would say something else.
    """
    if not is_sample(directory):
        raise PassNetError(f"{directory} is no sample directory: it has neither {GRAPH_LIST} nor {GRAPHS}/")
    variants = tuple(
        identify(read_variant(graph_directory(directory, path), directory, f"dir:{directory.name}/{path}"))
        for path in graph_paths(directory)
    )
    if not variants:
        raise PassNetError(f"{directory} has no graphs")
    category, family = variants[0].category, variants[0].family_hash
    return Sample(directory.resolve().name, family, category, "eval", variants, reason="eval: a directory")
