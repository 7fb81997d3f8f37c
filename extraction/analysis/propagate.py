"""Fake-tensor propagation: what every value of a graph is, which ops share memory, and which change it. Nothing runs.
Each op is called once on fake tensors (shape, stride and dtype without data). If a graph propagates, its ops accept
what they are given. If an op refuses, `Invalid` says why, by category. Where meta tensors tell the same as fake ones,
they are used, being cheaper, and a fake one is asked of the other ops (`extraction.analysis.meta_kernels`).
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)

from extraction.analysis.dtype_rules import DtypeRefused, check_dtypes
from extraction.analysis.fake_answers import answer, remembered
from extraction.analysis.meta_kernels import asks, described_by_meta_tensors, is_asked, is_doubtful, is_remembered
from extraction.analysis.number_sizes import check_arguments, check_result
from extraction.analysis.values import OtherValue, TensorValue, ValueInfo
from storage.graph import targets
from storage.graph.effects import base_name, writes
from storage.graph.record import Graph, GraphError, Op, Ref, RunDevice, Value, map_refs
from storage.records import Input, Output, dtype_name, dtype_of

_CPU, _META = torch.device("cpu"), torch.device("meta")


@dataclass(frozen=True)
class Propagated:
    """`values[n]` describes value n of the graph (inputs first); `mutated[n]` are the storages that op n changes."""

    values: tuple[ValueInfo, ...]
    mutated: tuple[frozenset[int], ...]


@dataclass(frozen=True)
class Invalid:
    """Why a graph does not accept these inputs: op number, category of cause, and the op's own message.

    `cause` is one of "target" (not in the allowlist), "graph" (malformed), "input" (there is no such tensor), "dtype",
    "data dependent", "not implemented", "layout" and "shape or argument". `by_rule`: one of
    `extraction.analysis.dtype_rules` refused it.
    """

    cause: str
    op: int
    message: str
    by_rule: bool = False


def propagate(graph: Graph, inputs: Sequence[Input]) -> Propagated | Invalid:
    """Describes every value of `graph` on inputs of these dtypes, shapes and strides; `Invalid` if an op refuses.

    Raises ValueError if there are not as many inputs as the graph has.
    """
    if len(inputs) != graph.inputs:
        raise ValueError(f"{len(inputs)} inputs for a graph of {graph.inputs}")
    if described_by_meta_tensors(graph):
        propagated = propagate_on_meta(graph, inputs)
        if isinstance(propagated, Propagated) or propagated.by_rule:
            return propagated  # else a fake tensor's message says the cause
    return propagate_on_fake(graph, inputs)


def propagate_on_fake(graph: Graph, inputs: Sequence[Input]) -> Propagated | Invalid:
    """`propagate` on fake CPU tensors, right for every op."""
    with quiet(), FakeTensorMode(allow_non_fake_inputs=True):
        return _run(graph, inputs, _CPU)


def propagate_on_meta(graph: Graph, inputs: Sequence[Input]) -> Propagated | Invalid:
    """`propagate` on meta tensors, for graphs that are `described_by_meta_tensors`: right where it is not `Invalid`."""
    return _run(graph, inputs, _META)


def _run(graph: Graph, inputs: Sequence[Input], device: torch.device) -> Propagated | Invalid:
    run = _Run(device, doubts=device == _META and asks(graph))
    with torch.no_grad():
        for number, spec in enumerate(inputs):
            try:
                run.add(torch.empty_strided(spec.shape, spec.stride, dtype=dtype_of(spec.dtype), device=device))
            except Exception as error:  # sizes beyond 64 bits, a quantised dtype: there is no such tensor
                return Invalid("input", 0, f"there is no input {number} as described: {_message(error)}")
        try:
            for number, op in enumerate(graph.ops):
                try:
                    run.step(op)
                except Exception as error:  # any op may refuse its arguments, each with an exception of its own
                    return Invalid(_cause(error), number, _message(error), isinstance(error, DtypeRefused))
        finally:
            run.leave_contexts()
    return Propagated(tuple(run.infos), tuple(run.mutated))


def told_by(graph: Graph, values: Sequence[Any]) -> Propagated | None:
    """What `propagate` says of a graph, from the meta tensors and tuples that its values were when it was recorded.

    None where they may not tell: there are other values than those; an op changes memory, or did so when it was
    recorded; inputs share memory; a rule refuses a dtype; meta tensors may tell another stride than fake ones.
    """
    alone = [v for n, v in enumerate(values) if n < graph.inputs or base_name(graph.ops[n - graph.inputs]) != "getitem"]
    if not all(isinstance(value, torch.Tensor | tuple) for value in alone):
        return None
    tensors = _tensors(alone)
    if any(t.device != _META for t in tensors) or len({id(t) for t in tensors}) < len(tensors):
        return None
    run, doubts = _Run(_META, doubts=False), asks(graph)
    for value in values[: graph.inputs]:
        run.add(value)
    if len(frozenset().union(*(info.storages for info in run.infos))) < graph.inputs:
        return None
    for op, value in zip(graph.ops, values[graph.inputs :], strict=True):
        first = values[op.args[0].index] if op.args and isinstance(op.args[0], Ref) else None
        if writes(op) or (doubts and is_doubtful(base_name(op), first, value)):
            return None
        try:
            check_dtypes(op, run.infos)
        except DtypeRefused:
            return None
        run.mutated.append(frozenset())
        run.add(value)
    return Propagated(tuple(run.infos), tuple(run.mutated))


def outputs_of(graph: Graph, propagated: Propagated) -> tuple[Output, ...] | None:
    """The graph's outputs, flattened; None if one of them is not a tensor."""
    outputs = []
    for item in graph.output if isinstance(graph.output, tuple | list) else (graph.output,):
        info = propagated.values[item.index] if isinstance(item, Ref) else None
        if not isinstance(info, TensorValue):
            return None
        outputs.append(Output(info.dtype, info.shape, info.stride))
    return tuple(outputs)


@contextmanager
def quiet() -> Iterator[None]:
    """Without logs: fake tensors log a traceback for every op that refuses its arguments, which is an answer here."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


class _Run:
    """The values so far, kept alive so that storages keep their identity."""

    def __init__(self, device: torch.device, doubts: bool) -> None:
        self.device = device
        self.doubts = doubts
        self.values: list[Any] = []
        self.infos: list[ValueInfo] = []
        self.mutated: list[frozenset[int]] = []
        self._storages: dict[int, int] = {}
        self._contexts: list[Any] = []

    def add(self, value: Any) -> None:
        self.infos.append(self._describe(value))
        self.values.append(value)

    def step(self, op: Op) -> None:
        arguments = [ref.index for ref in dict.fromkeys(_refs(op))]
        before = [(t, t._version) for index in arguments for t in _tensors(self.values[index])]
        check_dtypes(op, self.infos)
        args, kwargs = (_resolve(map_refs(part, self._value), self.device) for part in (op.args, op.kwargs))
        if op.kind == "method":
            result = getattr(args[0], targets.check_method(op.target))(*args[1:], **kwargs)
        elif self.device == _META and is_asked(base_name(op)):
            result = answer(targets.resolve(op.target), args, kwargs)
        elif self.device == _META and is_remembered(base_name(op)) and not writes(op):
            result = remembered(targets.resolve(op.target), args, kwargs)
        else:
            check_arguments(op.target, args)
            result = targets.resolve(op.target)(*args, **kwargs)
            check_result(op.target, result)
        if self.doubts and is_doubtful(base_name(op), args[0] if args else None, result):
            raise NotImplementedError("meta tensors may tell another stride")
        if op.target.endswith("._enter_autocast"):
            self._contexts.append(result)
        elif op.target.endswith("._exit_autocast"):
            self._contexts = [c for c in self._contexts if c is not args[0]]
        changed = {self._storage(t) for t, version in before if t._version != version}
        for ref in writes(op):  # running statistics change without a new version
            changed |= self.infos[ref.index].storages
        self.mutated.append(frozenset(changed))
        self.add(result)

    def leave_contexts(self) -> None:
        for mode in reversed(self._contexts):
            torch.amp.autocast_mode._exit_autocast(mode)

    def _value(self, ref: Ref) -> Any:
        return self.values[ref.index]

    def _storage(self, tensor: torch.Tensor) -> int:
        return self._storages.setdefault(tensor.untyped_storage()._cdata, len(self._storages))

    def _describe(self, value: Any) -> ValueInfo:
        if isinstance(value, torch.Tensor):
            if value.layout != torch.strided:
                raise NotImplementedError(f"a result of layout {value.layout}")
            stride = tuple(int(s) for s in value.stride())
            shape = tuple(int(s) for s in value.shape)
            return TensorValue(dtype_name(value.dtype), shape, stride, self._storage(value))
        return OtherValue(type(value).__name__, frozenset(self._storage(t) for t in _tensors(value)))


def _refs(op: Op) -> list[Ref]:
    found: list[Ref] = []
    map_refs((op.args, op.kwargs), found.append)
    return found


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


def _resolve(value: Value, device: torch.device) -> Any:
    if isinstance(value, RunDevice):
        return device
    if type(value) is tuple or type(value) is list:
        return type(value)(_resolve(item, device) for item in value)
    if isinstance(value, dict):
        return {key: _resolve(item, device) for key, item in value.items()}
    return value


def _message(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]


_DTYPE_WORDS = ("dtype", "scalar type", "ScalarType", "same type", "not implemented for '", "Half", "BFloat16", "Float")


def _cause(error: Exception) -> str:
    if isinstance(error, targets.TargetError):
        return "target"
    if isinstance(error, GraphError):
        return "graph"
    if isinstance(error, DataDependentOutputException | DynamicOutputShapeException):
        return "data dependent"
    if "layout" in str(error):
        return "layout"
    if any(word in str(error) for word in _DTYPE_WORDS):
        return "dtype"
    if isinstance(error, UnsupportedOperatorException | NotImplementedError):
        return "not implemented"
    return "shape or argument"
