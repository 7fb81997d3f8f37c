"""The same graph in double precision: the reference that says who is nearer to the truth, eager or the candidate."""

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_aggregate

_WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
_CASTS = ("float", "half", "bfloat16")  # tensor methods


def wide(dtype: torch.dtype) -> torch.dtype:
    """The double-precision dtype for a floating or complex one; others stay."""
    return _WIDE.get(dtype, dtype)


def in_double(module: fx.GraphModule) -> Callable:
    """A callable that runs the module with floating inputs, and dtypes that the graph names, in double precision.

    An input is widened where it is first used and dropped after its last use, so that a model's parameters never lie
    in memory twice, all at once. Some graphs cannot be run so (an operator without a double-precision form): calling
    raises what torch raises.
    """
    graph = fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    for node in graph.nodes:
        node.args = map_aggregate(node.args, _widened)
        node.kwargs = map_aggregate(node.kwargs, _widened)
        if node.op == "call_method" and node.target in _CASTS:
            node.target = "double"
    _widen_at_first_use(graph)
    forward = fx.GraphModule(module, graph).forward

    return forward


def _widen_at_first_use(graph: fx.Graph) -> None:
    place = {node: number for number, node in enumerate(graph.nodes)}
    for given in [node for node in graph.nodes if node.op == "placeholder" and node.users]:
        with graph.inserting_before(min(given.users, key=place.__getitem__)):
            widened = graph.call_function(widened_value, (given,))
        given.replace_all_uses_with(widened, delete_user_cb=lambda user, new=widened: user is not new)


def widened_value(x: Any) -> Any:
    """A tensor in its double-precision dtype; anything else as it is."""
    return x.to(wide(x.dtype)) if isinstance(x, torch.Tensor) else x


def _widened(value: Any) -> Any:
    return wide(value) if isinstance(value, torch.dtype) else value


def relative_error(actual: torch.Tensor, reference: torch.Tensor) -> float:
    """||actual - reference|| / ||reference|| over the elements that are finite in both, in double precision; the
    norm of the difference alone where the reference is zero. Shapes must be equal."""
    a, b = actual.to(reference.dtype), reference
    both = torch.isfinite(a) & torch.isfinite(b)
    zero = torch.zeros((), dtype=b.dtype, device=b.device)
    difference = torch.linalg.vector_norm(torch.where(both, a - b, zero))
    scale = torch.linalg.vector_norm(torch.where(both, b, zero))
    return float(difference / scale) if scale > 0 else float(difference)
