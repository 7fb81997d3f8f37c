"""Kernels of rows of equal blocks: the same as those of the whole graph's schedule, of which less is lowered."""

import pytest
import torch

from extraction.analysis.propagate import Propagated, propagate
from extraction.kernels.lowering import _scheduled, kernels_by_op
from extraction.kernels.repeats import Shortened, shortened
from storage.graph.record import Graph, Op, Ref
from storage.records import Input

BLOCKS, PERIOD = 9, 5


def _input(name: str, *shape: int) -> Input:
    return Input(name, "input", "float32", shape, torch.empty(shape, device="meta").stride())


def _stack(skips: int = 0, returned: tuple[int, ...] = (), other: int = -1) -> tuple[Graph, tuple[Input, ...]]:
    """Blocks of a layer norm, a product, two pointwise ops and the sum with what came in, between two other ops.

    A block adds what came into the block `skips` before it. The results of the blocks `returned` are returned, too.
    Block `other` computes another function.
    """
    inputs = [_input("x", 4, 16), *(_input(f"weight{n}", 16, 16) for n in range(BLOCKS)), _input("scale", 4, 16)]
    scale, ops = Ref(BLOCKS + 1), []

    def add(target: str, *args: object) -> Ref:
        ops.append(Op("function", target, args, {}))
        return Ref(len(inputs) + len(ops) - 1)

    came = [add("torch.exp", Ref(0))]
    for block in range(BLOCKS):
        normed = add("torch.nn.functional.layer_norm", came[-1], (16,))
        product = add("torch.nn.functional.linear", normed, Ref(1 + block))
        curve = add("torch.tanh" if block == other else "torch.nn.functional.gelu", product)
        scaled = add("operator.mul", curve, scale)
        came.append(add("operator.add", scaled, came[max(0, block - skips)]))
    last = add("torch.softmax", came[-1], -1)
    return Graph(len(inputs), tuple(ops), (last, *(came[block + 1] for block in returned))), tuple(inputs)


def _short(graph: Graph, inputs: tuple[Input, ...]) -> Shortened | None:
    propagated = propagate(graph, inputs)
    assert isinstance(propagated, Propagated)
    return shortened(graph, inputs, propagated)


def test_blocks_in_the_middle_need_what_their_schedule_says() -> None:
    graph, inputs = _stack()
    short = _short(graph, inputs)
    assert short is not None
    assert len(graph.ops) - len(short.graph.ops) >= (BLOCKS - 5) * PERIOD
    assert len(short.inputs) < len(inputs), "weights of what is left out are no inputs"
    whole = short.whole(_scheduled(short.graph, short.inputs, "reference"))
    assert whole == _scheduled(graph, inputs, "reference") == kernels_by_op(graph, inputs)


@pytest.mark.parametrize(
    "stack",
    [
        {"skips": 3},  # reads what is farther back than the block before
        {"returned": (4,)},  # what a block in the middle makes is kept for the caller
        {"other": 4},  # the rows beside it are too short
    ],
)
def test_rows_that_hang_together_otherwise_are_lowered_whole(stack: dict) -> None:
    graph, inputs = _stack(**stack)
    assert _short(graph, inputs) is None
    assert kernels_by_op(graph, inputs) == _scheduled(graph, inputs, "reference")


def test_neighbours_that_need_different_kernels_say_nothing_of_those_between() -> None:
    graph, inputs = _stack()
    short = _short(graph, inputs)
    assert short is not None
    needs = _scheduled(short.graph, short.inputs, "reference")
    place = short.gaps[0].start + 1
    assert short.whole([*needs[:place], needs[place] | {99}, *needs[place + 1 :]]) is None
    assert short.whole([frozenset()] * len(needs)) is None
