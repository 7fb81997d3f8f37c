"""Captures that remember the layouts of results, against captures that derive each."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import fx, nn

from extraction.tracing.known_layouts import KnownLayouts


class Block(nn.Module):
    """New tensors, views, tuples, a change in place, one that changes the layout too, and a change of dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x).relu_()
        left, right = y.chunk(2, dim=1)
        turned = left.clone().t_()
        top = right.topk(2, dim=1).values.to(torch.float64).sum(dim=1, keepdim=True).float()
        return x + torch.cat([turned.t() * top, right[:, 1:], right[:, -1:]], dim=1)


def captured(context: AbstractContextManager[Any]) -> list[tuple[Any, ...]]:
    """Operator and layout of every node."""
    nodes: list[tuple[Any, ...]] = []

    def collect(module: fx.GraphModule, _: list[Any]) -> Callable[..., Any]:
        for node in module.graph.nodes:
            example = node.meta.get("example_value")
            layout = (example.dtype, str(example.shape), str(example.stride())) if torch.is_tensor(example) else None
            nodes.append((node.name, node.target, str(node.args), layout))
        return module.forward

    torch._dynamo.reset()
    x = torch.ones(6, 8)
    torch._dynamo.maybe_mark_dynamic(x, 0)
    with torch.no_grad(), context:
        torch.compile(nn.Sequential(Block(), Block()), backend=collect, dynamic=False)(x)
    return nodes


def test_repeated_operators_have_the_layouts_that_deriving_them_gives() -> None:
    known = KnownLayouts()
    assert captured(known.used()) == captured(nullcontext())
    assert known.reused > 10
