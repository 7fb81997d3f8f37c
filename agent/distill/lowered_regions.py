"""A cache of lowered regions. Repeated blocks, the graphs of a family and those of a model have regions in common."""

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property

from agent.distill.cost import graph_us
from agent.distill.eager.op_effects import OpEffectsError, find_effects
from agent.distill.kernels.formulas.decompositions import INSTEAD_OF_CALLS
from agent.distill.kernels.formulas.small_products import SMALL_PRODUCTS, is_product
from agent.distill.kernels.host_program import Sketch, sketch
from agent.distill.kernels.index_expressions import Unsupported
from agent.distill.regions import find_regions, inputs_of
from agent.distill.rounding import Rounding, rounded
from extraction.kernels.lowering import LoweringError, lowered
from storage.graph.as_json import to_json
from storage.graph.record import Graph
from storage.records import Input

FAILURES = (Unsupported, LoweringError, OpEffectsError)
"""Why a region has no program."""


class Sketches:
    """Lowers regions, and keeps the `capacity` results, failures included, that were used last. With `products` kernels
    compute small products of matrices; regions without such are those of `plain`."""

    def __init__(self, capacity: int = 2000, plain: "Sketches | None" = None) -> None:
        self.capacity = capacity
        self.products, self._plain = plain is not None, plain
        self.lowered = 0  # regions that were not known, and graphs whose library calls were not
        self._kept: OrderedDict[tuple, Sketch | tuple[type[Exception], str]] = OrderedDict()
        self._calls: OrderedDict[tuple, frozenset[int]] = OrderedDict()

    @cached_property
    def with_products(self) -> "Sketches":
        """The same with `products`. A region that has none is lowered once for both."""
        return Sketches(self.capacity, plain=self)

    def of(self, graph: Graph, inputs: Sequence[Input], own_schedule: bool = False) -> Sketch:
        """The region's sketch. Raises one of `FAILURES`; a region that has failed before raises the same again."""
        if self._plain is not None and not any(map(is_product, graph.op_sequence)):
            return self._plain.of(graph, inputs, own_schedule)
        key = (*_key(graph, inputs), own_schedule)
        if key in self._kept:
            self._kept.move_to_end(key)
        else:
            self.lowered += 1
            self._kept[key] = _lowered(graph, inputs, own_schedule, self.products)
            if len(self._kept) > self.capacity:
                self._kept.popitem(last=False)
        answer = self._kept[key]
        if isinstance(answer, Sketch):
            return answer
        kind, message = answer
        raise kind(message)

    def library_calls(self, graph: Graph, inputs: Sequence[Input]) -> frozenset[int]:
        """The last op of each library call that no kernel could replace. Raises LoweringError or OpEffectsError."""
        if self._computes(graph, inputs):
            return frozenset()
        key = _key(graph, inputs)
        if key not in self._calls:
            self.lowered += 1
            instead = INSTEAD_OF_CALLS | (SMALL_PRODUCTS if self.products else {})
            with lowered(graph, inputs, decompositions=instead, short_indices=True) as result:
                self._calls[key] = frozenset(max(k.ops) for k in result.kernels if k.kind == "extern" and k.ops)
            if len(self._calls) > self.capacity:
                self._calls.popitem(last=False)
        return self._calls[key]

    def _computes(self, graph: Graph, inputs: Sequence[Input]) -> bool:
        """Whether kernels compute a whole graph without products of matrices, convolutions and attention as one region.
        It is lowered once then, and not also for its library calls."""
        known = find_effects(graph, inputs)
        regions = [] if any(known.flops) else find_regions(graph, known, ())
        if [len(region.ops) for region in regions] != [len(graph.ops)]:
            return False
        with suppress(*FAILURES):
            self.of(regions[0].graph, inputs_of(regions[0], known))
            return True
        return False


def lowered_anew(graph: Graph, inputs: Sequence[Input]) -> Sketch | None:
    """The region's sketch; None where it has none."""
    made = _lowered(graph, inputs, own_schedule=False, products=False)
    return made if isinstance(made, Sketch) else None


def exactly(sketch: Sketch) -> Sketch | None:
    """The sketch with eager's bits, as far as they are expected; None where it has none."""
    return rounded(sketch, Rounding.EXACT)


def lowered_exactly(graph: Graph, inputs: Sequence[Input]) -> Sketch | None:
    """The region's sketch with eager's bits; None where it has none."""
    made = lowered_anew(graph, inputs)
    return exactly(made) if made is not None else None


def _key(graph: Graph, inputs: Sequence[Input]) -> tuple:
    return to_json(graph), tuple((i.dtype, i.shape, i.stride) for i in inputs)


def _lowered(
    graph: Graph, inputs: Sequence[Input], own_schedule: bool, products: bool
) -> Sketch | tuple[type[Exception], str]:
    try:
        found = sketch(graph, inputs, own_schedule, products=products)
    except FAILURES as error:
        return type(error), str(error)
    if not own_schedule and len(found.bodies) > 1:
        with suppress(*FAILURES):
            return min(found, sketch(graph, inputs, on_gpu=True, products=products), key=graph_us)
    return found
