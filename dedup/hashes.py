"""Identity of subgraphs: graph, variant, family and base hash, SHA-256 over text that this project defines.

Subgraphs with equal base hashes merge before they are varied, variants with equal variant hashes after that
(`dedup.unique`). Variants with equal family hashes are one sample (`dedup.samples`).

Nothing in the text depends on the process or on how torch prints things: targets are names in the allowlist, constants
are tagged by type (`storage.graph.as_json`), so 1, 1.0 and True differ, and so do 0.0 and −0.0.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from dedup.canonical import Canonical, canonical
from storage.graph.as_json import to_json
from storage.graph.record import Graph, Ref, Value
from storage.graph.render import render
from storage.graph.symbols import names, symbols_of
from storage.records import Input, Variant


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
    inputs = _inputs(form, variant)
    identity = _sha256(to_json(form.graph))
    return variant.with_changes(
        graph=form.graph,
        inputs=inputs,
        code=render(form.graph),
        graph_hash=identity,
        variant_hash=_variant_hash(identity, inputs),
        family_hash=_sha256(_family_text(form.graph)),
    )


def identify_base(variant: Variant) -> Variant:
    """A subgraph before it is varied in canonical form, with its base hash as its variant hash.

    `extraction.varying.vary` makes the same variants of subgraphs with equal base hashes. Hashed are the graph with its
    expressions; dtype, shape, stride and their expressions of each input; and the sizes of the symbols that these name.
    The result has no source text and no graph or family hash. It is not a row of a dataset; its variants are.
    """
    form = canonical(variant.graph)
    identity = _base_hash(to_json(form.graph), form, variant)
    return variant.with_changes(graph=form.graph, inputs=_inputs(form, variant), variant_hash=identity)


def _inputs(form: Canonical, variant: Variant) -> tuple[Input, ...]:
    moved = ((variant.inputs[old], f"in_{new}") for new, old in enumerate(form.inputs))
    return tuple(each if each.name == name else replace(each, name=name) for each, name in moved)


def _variant_hash(graph: str, inputs: Sequence[Input]) -> str:
    return _sha256(_dumps([graph, [[i.dtype, i.shape, i.stride] for i in inputs]]))


def _base_hash(text: str, form: Canonical, variant: Variant) -> str:
    inputs = [variant.inputs[n] for n in form.inputs]
    expressions = {e for i in inputs for part in (i.symbolic_shape, i.symbolic_stride) for e in part or ()}
    named = symbols_of(form.graph).union(*map(names, expressions)) if variant.symbols else ()
    described = [[i.dtype, i.shape, i.stride, i.symbolic_shape, i.symbolic_stride] for i in inputs]
    return _sha256(_dumps([text, described, {name: variant.symbols.get(name) for name in named}]))


def _family_text(graph: Graph) -> str:
    ops = [[op.kind, op.target, _stripped(op.args), _wired(op.kwargs)] for op in graph.ops]
    return _dumps([graph.inputs, ops, _wiring(graph.output)])


def _wired(values: dict[str, Value]) -> dict[str, Any]:
    wired = {key: _wiring(values[key]) for key in sorted(values)} if values else {}
    return {key: value for key, value in wired.items() if value is not None}


def _wiring(value: Value) -> Any:
    """References as numbers, in the nesting in which they stand; everything else as null."""
    kind = type(value)
    if kind is Ref:
        return value.index
    if kind is tuple or kind is list:
        return _stripped(value) or None
    if kind is slice:
        return _stripped((value.start, value.stop, value.step)) or None
    return (_wired(value) or None) if kind is dict else None


def _stripped(values: Iterable[Value]) -> list[Any]:
    items = [_wiring(value) for value in values]
    while items and items[-1] is None:
        items.pop()
    return items


_dumps = json.JSONEncoder(separators=(",", ":"), allow_nan=False, sort_keys=True).encode


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
