"""Kernels of rows for the numbers of rows for which eager adds in another order than in the variants.

Where rows are few, eager's blocks have other threads for other numbers of them: one token of a sequence is such a case.
These kernels are lowered once, for the pass that is handed in, and are not measured. Whether eager adds in their
orders is asked of the device, as everywhere (`general_plans.confirmed`).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from agent.distill.eager.orders_by_rows import order_of_rows
from agent.distill.eager.sum_order import ROWS_OF_OTHER_ORDERS
from agent.distill.kernels.host_program import Sketch
from agent.distill.kernels.launch_configs import LaunchLimits
from agent.distill.kernels.schedule import KernelBody
from agent.distill.kernels.value_graph import Value
from agent.distill.other_inputs.any_rows import AnyRows, any_rows
from agent.distill.other_inputs.general_plans import General, alike
from agent.distill.other_inputs.kept_plans import Lower
from storage.graph.record import Graph
from storage.records import Input, dtype_name

Exactly = Callable[[Sketch], Sketch | None]
"""The sketch with eager's bits; None where it has none."""


def in_other_orders(
    found: Sequence[General], graph: Graph, lower: Lower, exactly: Exactly, limits: LaunchLimits
) -> list[AnyRows]:
    """The kernels that the region `graph` has for further numbers of rows, `alike` those that were `found` in its
    variants. `lower` does nothing about eager's bits."""
    more: list[AnyRows] = []
    for one in found:
        if isinstance(one, AnyRows) and one.sketch.bodies[0].step is not None:
            known = [each.spans for each in (*found, *more) if (each.dtypes, each.fixed) == (one.dtypes, one.fixed)]
            inputs = [Input("x", "input", dtype_name(dtype), shape, stride) for dtype, shape, stride in one.sketch.key]
            more += _further(one, [span for spans in known for span in spans], lower(graph, inputs), exactly, limits)
    return more


def _further(
    one: AnyRows, known: Sequence[tuple[int, int]], plain: Sketch | None, exactly: Exactly, limits: LaunchLimits
) -> list[AnyRows]:
    """The kernels for the numbers of rows outside of the `known` ranges. `plain` is the sketch of the region."""
    if plain is None or len(plain.bodies) != 1 or plain.bodies[0].renumbered is not None:
        return []
    more: list[AnyRows] = []
    for rows in (1, *ROWS_OF_OTHER_ORDERS):
        if any(first <= rows < end for first, end in (*known, *(span for each in more for span in each.spans))):
            continue
        body = _in_order_of(plain.bodies[0], rows)
        made = exactly(replace(plain, bodies=(body,))) if body is not None else None
        again = any_rows(made, limits) if made is not None else None
        if again is not None and alike([one, again]):
            more.append(again)
    return more


def _in_order_of(body: KernelBody, rows: int) -> KernelBody | None:
    """The kernel with eager's orders for so many rows; None where one is not known."""
    done: dict[int, Value] = {}
    for value in body.values():
        order = value.order
        if order is not None and not order.free:
            order = order_of_rows(order, body.columns, rows)
            if order is None:
                return None
        done[value.number] = replace(value, args=tuple(done[a.number] for a in value.args), order=order)
    return replace(body, stores=tuple(replace(s, value=done[s.value.number]) for s in body.stores))
