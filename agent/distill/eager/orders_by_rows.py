"""For which numbers of rows eager adds along rows in the same order: kernels for any number of rows ask."""

import math
from collections.abc import Callable, Collection
from dataclasses import replace

from agent.distill.eager.sum_order import ROWS_OF_OTHER_ORDERS, SumOrder, order_of
from storage.records import contiguous_stride

_BYTES = 2**31 - 1
"""A tensor of more bytes is added in parts, of less rows each (`TensorIterator::with_32bit_indexing`)."""

Span = tuple[int, int]
"""Numbers of rows, from the first to one behind the last."""


def rows_of_same_orders(orders: Collection[SumOrder], length: int, most: int) -> tuple[Span, ...]:
    """The numbers of rows, up to `most`, for which eager's orders are these, which add rows of `length` elements.

    They are computed for the first number of rows of each range within which `order_of` gives the same.
    """
    found: list[Span] = []
    bytes_of_rows = [length * order.addition.dtype.itemsize for order in orders if order.addition is not None]
    most = min([most, *(_BYTES // each for each in bytes_of_rows)])
    ends = [*(rows for rows in ROWS_OF_OTHER_ORDERS if rows <= most), most + 1]
    for first, end in zip([1, *ends], ends, strict=False):
        if not all(_is_added_so(order, length, first) for order in orders):
            continue
        if found and found[-1][1] == first:
            found[-1] = found[-1][0], end
        else:
            found.append((first, end))
    return tuple(found)


def confirmed_rows(
    spans: Collection[Span], orders: Collection[SumOrder], length: int, confirms: Callable[[SumOrder], bool]
) -> tuple[Span, ...]:
    """Those of the spans of `rows_of_same_orders` in which the orders are confirmed to be eager's: `confirms` is asked
    for the fewest rows of a span, and for the fewest of its second range. Those of its last would be a large probe."""

    def asked(span: Span) -> list[int]:
        first, end = span
        return [first, *(rows for rows in ROWS_OF_OTHER_ORDERS if first < rows < end)][:2]

    needed = {span: [order_of_rows(order, length, rows) for rows in asked(span) for order in orders] for span in spans}
    return tuple(span for span, some in needed.items() if all(one is not None and confirms(one) for one in some))


def order_of_rows(order: SumOrder, length: int, rows: int) -> SumOrder | None:
    """The order in which eager adds the same with so many rows; None where that is not known, or if what it adds are no
    rows of `length` elements one behind another."""
    addition = order.addition
    if addition is None or not addition.reduced:
        return None
    first = min(addition.reduced)
    row = addition.shape[first:]
    others = set(range(first, len(addition.shape))) - set(addition.reduced)
    strides = zip(addition.shape, addition.stride, contiguous_stride(addition.shape), strict=True)
    if math.prod(row) != length or any(addition.shape[d] > 1 for d in others):
        return None
    if any(n > 1 and given != plain for n, given, plain in strides):
        return None
    shape, reduced = (rows, *row), tuple(d - first + 1 for d in addition.reduced)
    return order_of(replace(addition, shape=shape, stride=contiguous_stride(shape), reduced=reduced))


def _is_added_so(order: SumOrder, length: int, rows: int) -> bool:
    found = order_of_rows(order, length, rows)
    return found is not None and order in (found, found.without_idle())
