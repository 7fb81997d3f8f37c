"""Identity of subgraphs: graph, variant and family hash, SHA-256 in hexadecimal over text that this project defines.

Nothing in the text depends on the process or on how torch prints things: targets are names in the allowlist, constants
are tagged by type (`storage.graph_json`), so 1, 1.0 and True differ, and so do 0.0 and −0.0.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from dedup.canonical import canonical
from storage.graph import Graph, Ref, Value, refs
from storage.graph_json import to_json
from storage.records import Input, Variant
from storage.render import render


def graph_hash(graph: Graph) -> str:
    """Identity of the ops, their wiring and every constant; names, input order and listing order do not count."""
    return _sha256(to_json(canonical(graph).graph))


def family_hash(graph: Graph) -> str:
    """Identity of op targets and wiring: constants do not count."""
    return _sha256(_family_text(canonical(graph).graph))


def variant_hash(graph: Graph, inputs: Sequence[Input]) -> str:
    """Identity of a graph on inputs of these dtypes, shapes and strides."""
    form = canonical(graph)
    return _variant_hash(_sha256(to_json(form.graph)), [inputs[n] for n in form.inputs])


def identify(variant: Variant) -> Variant:
    """The variant in canonical form: graph, inputs (named `in_0…` in order) and source text, with its hashes."""
    form = canonical(variant.graph)
    inputs = tuple(replace(variant.inputs[old], name=f"in_{new}") for new, old in enumerate(form.inputs))
    identity = _sha256(to_json(form.graph))
    return variant.with_changes(
        graph=form.graph,
        inputs=inputs,
        code=render(form.graph),
        graph_hash=identity,
        variant_hash=_variant_hash(identity, inputs),
        family_hash=_sha256(_family_text(form.graph)),
    )


def identify_all(variants: Iterable[Variant]) -> Iterator[Variant]:
    """`identify` for each."""
    return (identify(variant) for variant in variants)


def _variant_hash(graph: str, inputs: Sequence[Input]) -> str:
    return _sha256(_dumps([graph, [[i.dtype, list(i.shape), list(i.stride)] for i in inputs]]))


def _family_text(graph: Graph) -> str:
    ops = [[op.kind, op.target, _stripped([_wiring(a) for a in op.args]), _wired(op.kwargs)] for op in graph.ops]
    return _dumps([graph.inputs, ops, _wiring(graph.output)])


def _wired(values: dict[str, Value]) -> dict[str, Any]:
    return {key: _wiring(values[key]) for key in sorted(values) if any(refs(values[key]))}


def _wiring(value: Value) -> Any:
    """References as numbers, in the nesting in which they stand; everything else as null."""
    if isinstance(value, Ref):
        return value.index
    if next(refs(value), None) is None:
        return None
    if isinstance(value, dict):
        return _wired(value)
    items = (value.start, value.stop, value.step) if isinstance(value, slice) else value
    return _stripped([_wiring(item) for item in items])


def _stripped(items: list[Any]) -> list[Any]:
    while items and items[-1] is None:
        items.pop()
    return items


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False, sort_keys=True)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
