"""From the schedule of a whole graph to kernels that ranges of its ops need by themselves.

A schedule is made for a whole graph. A range of its ops may end earlier, and its results are kept then. The range by
itself does not need what the schedule does for later ops:

- it computes a value again wherever it is read;
- it reduces an unfinished value in other portions;
- it leaves a normalisation's last step to the next reduction;
- it writes straight into a part of what `cat` makes;
- it puts off a pointwise op until a later kernel.

The functions here take these back.
"""

from collections import Counter
from collections.abc import Sequence, Set
from typing import Any

import torch
from torch import fx
from torch._inductor import config as inductor_config
from torch._inductor.lowering import lowerings

from extraction.analysis.prepared import Prepared
from extraction.analysis.values import TensorValue
from storage.graph.effects import base_name
from storage.graph.record import Graph, Op, Ref, refs

_NORMALISES = frozenset(
    "softmax log_softmax softmin layer_norm group_norm instance_norm rms_norm local_response_norm normalize".split()
)


def with_shared_results(prepared: Prepared) -> Graph:
    """The graph with more outputs, which the schedule must then compute once and keep.

    Added are tensors that several ops read, through views or not, and results of ops that reduce first and then compute
    as many elements as they were given, such as normalisations.
    """
    graph = prepared.graph
    readers: Counter[int] = Counter()
    for op in range(len(graph.ops)):
        if prepared.computes(op) and not prepared.is_dead(op):
            readers.update(prepared.reads[op])
    shared = []
    for op in range(len(graph.ops)):
        value = prepared.propagated.values[graph.inputs + op]
        enough = 1 if base_name(graph.ops[op]) in _NORMALISES else 2
        if isinstance(value, TensorValue) and prepared.computes(op) and readers[value.storage] >= enough:
            shared.append(Ref(graph.inputs + op))
    return Graph(graph.inputs, graph.ops, tuple(dict.fromkeys((*refs(graph.output), *shared))))


def early(
    prepared: Prepared, needs: Sequence[frozenset[int]], generated: Set[int], pointwise: Set[int]
) -> list[frozenset[int]]:
    """The kernels of each op, with pointwise ops in the first generated kernel that could compute them: the one that
    makes the last of their operands, element for element. A schedule may put them into a later one."""
    result = list(needs)
    writer: dict[int, int] = {}  # storage → the last op that wrote to it
    for op, needed in enumerate(needs):
        if op in pointwise and len(needed) == 1:
            makers = {writer[storage] for storage in prepared.reads[op] if storage in writer}
            last = max((max(result[maker], default=-1) for maker in makers), default=-1)
            alike = any(
                last in result[m]
                and prepared.elements(m) == prepared.elements(op)
                and not _is_put_together(prepared.graph.ops[m])
                for m in makers
            )
            if last in generated and last < min(needed) and alike:
                result[op] = frozenset((last,))
        if prepared.computes(op):
            value = prepared.propagated.values[prepared.inputs + op]
            writer.update(dict.fromkeys(value.storages | prepared.propagated.mutated[op], op))
    return result


def _is_put_together(op: Op) -> bool:
    """Whether the op is a `cat` of so many operands that each is copied by itself."""
    return base_name(op) == "cat" and len(list(refs(op.args))) > inductor_config.max_pointwise_cat_inputs


def pointwise_ops(aten: fx.GraphModule) -> frozenset[int]:
    """The ops that compute each element of their result from one element of each operand."""
    kinds: dict[int, bool] = {}
    for node in aten.graph.nodes:
        if "op" in node.meta and not is_view(node):
            plain = torch.Tag.pointwise in getattr(node.target, "tags", ()) or node.target in _COPIES
            kinds[node.meta["op"]] = kinds.get(node.meta["op"], True) and plain
    return frozenset(op for op, plain in kinds.items() if plain)


_COPIES = (torch.ops.aten.clone.default, torch.ops.aten._to_copy.default, torch.ops.aten.copy.default)


def is_view(node: fx.Node) -> bool:
    """Whether all results of an ATen node are views of its operands."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.returns) and all(_is_alias(each) for each in schema.returns)


def _is_alias(result: torch.Argument) -> bool:
    return result.alias_info is not None and not result.alias_info.is_write


def _cat(inputs: Sequence[Any], dim: int = 0) -> Any:
    few = len(inputs) <= inductor_config.max_pointwise_cat_inputs
    with inductor_config.patch(force_pointwise_cat=few):
        return _lower_cat(inputs, dim)


_lower_cat = lowerings[torch.ops.aten.cat.default]
CAT = {torch.ops.aten.cat.default: _cat}
"""Lowerings with which `cat` is one kernel where its operands come from outside the range."""
