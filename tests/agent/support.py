"""Variants from plain functions, and a client of the interpreter process."""

import json
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

from agent.author import Attempt
from passbench.matching.trace_pattern import trace_pattern
from passbench.workers.forked_program import ForkedProgram
from storage.graph.as_fx import from_fx
from storage.graph.record import Graph
from storage.records import Input, Sample, Variant, dtype_name

HALVES = ("float16", "bfloat16")
FLOATS = ("float32", *HALVES)
ANY = -math.inf
"""A margin that every region has, whatever it costs."""
PAIR = 0.0
"""A margin that two launches made one have, and one launch has not."""


def tensor(*shape: int, dtype: str = "float32", stride: tuple[int, ...] | None = None, **fields) -> Input:
    """An input, contiguous unless `stride` is given."""
    if stride is None:
        stride = torch.empty(shape, device="meta").stride()
    return Input("x", fields.pop("role", "input"), dtype, tuple(shape), tuple(stride), **fields)


def variant(function: Callable, *inputs: Input) -> Variant:
    """The variant of a function, traced as PassBench traces patterns: operators in place are kept as dynamo does."""
    return Variant("fusible", _traced(function), inputs, ())


@cache
def _traced(function: Callable) -> Graph:
    return from_fx(trace_pattern(function, "test").ops[0].graph)


def sample(*variants: Variant) -> Sample:
    """A sample of these variants."""
    return Sample("fusible-test", "f" * 12, "fusible", "eval", variants)


def in_dtype(inputs: tuple[Input, ...], dtype: str) -> tuple[Input, ...]:
    """The inputs with their float32 tensors in another dtype."""
    return tuple(Input(**{**vars(i), "dtype": dtype}) if i.dtype == dtype_name(torch.float32) else i for i in inputs)


def lent(device: str = "cpu", measure: Callable | None = None, **fields) -> Attempt:
    """What a run lends to an author for its first attempt; nothing is kept."""
    plain = {"save": lambda row: None, "saved": None, "say": lambda text: None} | fields
    return Attempt(1, device, measure, **plain)


class Interpreter:
    """A process that runs passes under the Triton interpreter."""

    def __init__(self) -> None:
        self.process = ForkedProgram("tests.agent.interpreter")

    def problems(self, directory: Path, one: Variant, draws: int = 2) -> list[str]:
        """What differs from eager in one variant under the pass in `directory`."""
        request = {"directory": str(directory), "variant": one.to_row(), "draws": draws}
        return self._asked(request)

    def other_calls(self, directory: Path, one: Variant) -> list[str]:
        """Which calls of torch, and which outputs' bits, are not eager's in one variant under the pass."""
        return self._asked({"directory": str(directory), "variant": one.to_row(), "calls": True})

    def results(self, directory: Path, one: Variant, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """What one variant returns for these inputs under the pass in `directory`."""
        kept = directory.with_name(f"{directory.name}-results.pt")
        torch.save(inputs, kept)
        found = self._asked({"directory": str(directory), "variant": one.to_row(), "results": str(kept)})
        assert found == [], found
        return torch.load(kept)

    def _asked(self, request: dict) -> list[str]:
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        """Ends the process."""
        self.process.close()
