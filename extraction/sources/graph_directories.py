"""Graphs that lie in directories, in PassNet's or GraphNet's layout: a source that needs no tracing."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from extraction.failures import ModelError
from storage.graph.record import Graph, op_name
from storage.layout.errors import LayoutError
from storage.layout.read import FILES, MODEL, UNREADABLE, find, graph_directory, graph_paths, read_graph, read_text
from storage.layout.variant import variant_of
from storage.records import Input, TracedGraph, Variant

LIBRARY = "torch"


def directories(root: Path) -> Iterator[Path]:
    """The directories with a model.py at and below `root`: whole models, and the graphs of samples.

    Raises LayoutError where a directory cannot be listed, or a sample lists its graphs badly.
    """
    for found in find(root):
        if found.kind == "model":
            yield found.path
        elif found.kind == "sample":
            yield from (graph_directory(found.path, path) for path in graph_paths(found.path))
        else:
            raise LayoutError("unreadable file", UNREADABLE, str(found.path))


def config(name: str) -> dict[str, Any]:
    """The directory of that name, and what its files hold (sha256, hex). Its path is absolute: workers run elsewhere.

    Raises ModelError: "not_found" if there is none, or no model.py in it, "config" if a file cannot be read.
    """
    directory = Path(name)
    if not (directory / MODEL).is_file():
        if not directory.is_dir():
            raise ModelError("not_found", f"{directory} is no directory")
        what = f"{directory} has no {MODEL}: `dir:` names the directory of one graph"
        raise ModelError("not_found", f"{what}; for all graphs below it give it as the catalogue itself")
    digest = hashlib.sha256()
    for file in FILES:
        if (directory / file).exists():
            try:
                text = read_text(directory / file, directory)
            except LayoutError as error:
                raise ModelError("config", str(error)) from error
            digest.update(f"{file} {len(text)} {text}".encode())
    return {"path": os.path.abspath(name), "sha256": digest.hexdigest()}


def normalise(fields: dict[str, Any]) -> dict[str, Any]:
    """All of it: the graph is what the files say."""
    return fields


def graphs(fields: dict[str, Any], model: str) -> tuple[TracedGraph, ...]:
    """The graph in a directory, named `model`; inputs without a range get one from their use and role.

    Raises ModelError ("graph_break") if it is not in the layout or has no op, ("config") if it has changed meanwhile.
    """
    directory = Path(fields["path"])
    if config(fields["path"]) != fields:
        raise ModelError("config", f"{directory} has changed since the build began; build again")
    try:
        found = read_graph(directory)
    except LayoutError as error:
        raise ModelError("graph_break", str(error)) from error
    if not found.graph.ops:
        raise ModelError("graph_break", f"{directory / MODEL} has no operation")
    inputs = [replace(each, symbolic_shape=None, symbolic_stride=None) for each in found.inputs]
    return (TracedGraph(model, 0, found.graph, _with_ranges(found.graph, inputs)),)


def read_variant(directory: Path, root: Path, source: str) -> Variant:
    """The graph in a directory as a variant that propagates, without hashes; `root` is the tree that it is part of.

    Where it does not say where it comes from, its source is `source`. Inputs without a range get one from their use and
    role. Raises LayoutError; nothing is executed.
    """
    from extraction.analysis.propagate import Invalid, outputs_of, propagate

    found = read_graph(directory, root)
    where = str(directory / MODEL)
    if not found.graph.ops:
        raise LayoutError("invalid", "the graph has no operation", where)
    variant = variant_of(found, directory, source)
    propagated = propagate(variant.graph, variant.inputs)
    if isinstance(propagated, Invalid):
        op = variant.graph.ops[propagated.op]
        message = f"{op_name(op)} does not take its arguments ({propagated.cause}): {propagated.message}"
        message = propagated.message if propagated.cause == "input" else message
        raise LayoutError("invalid", " ".join(message.split())[:300], where)
    outputs = outputs_of(variant.graph, propagated)
    if outputs is None:
        raise LayoutError("invalid", "the graph returns something other than tensors", where)
    return variant.with_changes(inputs=_with_ranges(variant.graph, variant.inputs), outputs=outputs)


def _with_ranges(graph: Graph, inputs: Sequence[Input]) -> tuple[Input, ...]:
    if all(map(_has_range, inputs)):
        return tuple(inputs)
    from extraction.analysis.plausible_inputs import (
        with_ranges,  # torch's fake tensors, which reading a catalogue should not wait for
    )

    drawn = with_ranges(graph, inputs)
    return tuple(old if _has_range(old) else new for old, new in zip(inputs, drawn, strict=True))


def _has_range(each: Input) -> bool:
    return each.low is not None or each.mean is not None
