"""A variant under a pass beside the variant in eager, on any device: what differs."""

import json
from pathlib import Path

import torch

from passbench.contract import NAMES_FILE, loaded_rules
from passbench.inputs.distribution import CORRECTNESS
from passbench.inputs.draw import make_inputs
from passbench.matching.rewrite import apply_pass
from storage.graph.as_fx import to_fx
from storage.records import Variant

ATOL = 1e-5
RTOL = {torch.float32: 1.3e-6, torch.float16: 1e-3, torch.bfloat16: 1.6e-2, torch.float64: 1e-7}
"""Tolerances of docs/design.md at t = -5."""


def rewritten(directory: Path, variant: Variant, device: str = "cpu") -> torch.fx.GraphModule | str:
    """The variant under the pass, or why nothing in it matches."""
    graph = to_fx(variant.graph, device)
    with loaded_rules(directory, tuple(json.loads((directory / NAMES_FILE).read_text()))) as rules:
        applied = apply_pass(graph, rules)
    return torch.fx.GraphModule(torch.nn.Module(), graph) if applied.total else applied.diagnosis()


def problems(directory: Path, variant: Variant, draws: int, device: str = "cpu") -> list[str]:
    """What differs from eager: no match, outputs, their layouts and aliases, or inputs written over."""
    candidate = rewritten(directory, variant, device)
    if isinstance(candidate, str):
        return [candidate]
    eager = torch.fx.GraphModule(torch.nn.Module(), to_fx(variant.graph, device))
    found = []
    for draw in range(draws):
        how = CORRECTNESS[draw % len(CORRECTNESS)]
        drawn = [make_inputs(variant.inputs, 7, draw, device, how) for _ in range(2)]
        with torch.no_grad():
            expected, actual = eager(*drawn[0]), candidate(*drawn[1])
        pairs = zip(as_tuple(expected), as_tuple(actual), strict=True)
        for number, (want, have) in enumerate(pairs):
            found += [f"draw {draw}, output {number}: {text}" for text in _difference(want, have)]
            shares = [any(_same_memory(v, i) for i in inputs) for v, inputs in zip((want, have), drawn, strict=True)]
            if shares[0] != shares[1]:
                found.append(f"draw {draw}, output {number}: aliases an input in one of both only")
        for number, (want, have) in enumerate(zip(*drawn, strict=True)):
            found += [f"draw {draw}, input {number} afterwards: {text}" for text in _difference(want, have)]
    return found


def as_tuple(value):
    return value if isinstance(value, tuple | list) else (value,)


def _same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def _difference(want: torch.Tensor, have: torch.Tensor) -> list[str]:
    layouts = [(t.dtype, tuple(t.shape), t.stride()) for t in (want, have)]
    if layouts[0] != layouts[1]:
        return [f"layout {layouts[1]}, eager's is {layouts[0]}"]
    if want.dtype not in RTOL:
        return [] if torch.equal(want, have) else ["values differ"]
    close = torch.isclose(have.double(), want.double(), rtol=RTOL[want.dtype], atol=ATOL, equal_nan=True)
    if close.all():
        return []
    worst = (have.double() - want.double()).abs().nan_to_num().max().item()
    return [f"{(~close).sum().item()} of {close.numel()} elements differ, by {worst:.3g} at most"]
