"""A graph in PassNet's layout as a variant: what graph_net.json and the path say about it, checked."""

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from storage.graph.record import Graph
from storage.layout.errors import LayoutError
from storage.layout.read import METADATA, GraphDirectory
from storage.records import Source, Variant
from storage.schema import CATEGORIES

MAX_SOURCES = 64
_DIRECTIONS = ("forward", "backward")
_MAX_COUNT = 1 << 31


def variant_of(found: GraphDirectory, path: PurePath, source: str) -> Variant:
    """The variant in a directory, without outputs and hashes. `source` names its origin where it does not itself.

    `path` is where it is in the tree, which may name its category. Raises LayoutError ("metadata") where PassNet's own
    part of graph_net.json is malformed.
    """
    own = found.metadata.get("passnet") or {}
    where = str(path / METADATA)
    if not isinstance(own, dict):
        raise LayoutError("metadata", "`passnet` is not an object", where)
    direction = own.get("direction", _DIRECTIONS[0])
    if direction not in _DIRECTIONS:
        raise LayoutError("metadata", f"`direction` is none of {', '.join(_DIRECTIONS)}", where)
    sources = _sources(own, where) or (Source(source, 0, len(found.graph.ops)),)
    return Variant(
        category=category_of(found.graph, found.metadata, path),
        graph=found.graph,
        inputs=found.inputs,
        outputs=(),
        sources=sources,
        kernels=None if own.get("kernels") is None else _count(own, "kernels", 0, where),
        occurrences=_count(own, "occurrences", 1, where),
        direction=direction,
        symbols=found.symbols,
    )


def category_of(graph: Graph, metadata: Mapping[str, Any], path: PurePath) -> str:
    """The category of a graph, by the first of these that tells; `fusible` if none does.

    PassNet's own part of graph_net.json. One op: `sole_op`. Else how graph_net.json's category or a part of the path
    begins, as in `fusible-1/`.
    """
    own = metadata.get("passnet")
    said = own.get("category") if isinstance(own, dict) else None
    if isinstance(said, str) and said in CATEGORIES:
        return said
    if len(graph.ops) == 1:
        return "sole_op"
    for text in (metadata.get("category"), *reversed(path.parts)):
        start = re.split("[-_.]", text)[0].lower() if isinstance(text, str) else ""
        if start in ("fusible", "typical"):
            return start
    return "fusible"


def _count(own: Mapping[str, Any], name: str, least: int, where: str) -> int:
    count = own.get(name, least)
    if type(count) is not int or not least <= count < _MAX_COUNT:
        raise LayoutError("metadata", f"`{name}` is not a count", where)
    return count


def _sources(own: Mapping[str, Any], where: str) -> tuple[Source, ...]:
    sources = own.get("sources", [])
    if not isinstance(sources, list) or len(sources) > MAX_SOURCES or not all(map(_is_source, sources)):
        raise LayoutError("metadata", "`sources` is not a short list of [model, start, end]", where)
    return tuple(Source(*each) for each in sources)


def _is_source(each: Any) -> bool:
    if not isinstance(each, list) or len(each) != 3 or not isinstance(each[0], str) or len(each[0]) > 500:
        return False
    return all(type(n) is int and 0 <= n < _MAX_COUNT for n in each[1:]) and each[0].isprintable()
