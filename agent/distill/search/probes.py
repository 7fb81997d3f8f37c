"""Which variants of a sample a search measures."""

import math
from collections.abc import Sequence

from storage.records import Variant


def spread(variants: Sequence[Variant], count: int) -> tuple[Variant, ...]:
    """At most `count` of the variants, evenly spaced from the smallest inputs to the largest."""
    ordered = sorted(variants, key=lambda v: (sum(math.prod(i.shape) for i in v.inputs), v.variant_hash))
    if len(ordered) <= count:
        return tuple(ordered)
    last = len(ordered) - 1
    return tuple(ordered[round(n * last / (count - 1))] for n in range(count)) if count > 1 else (ordered[-1],)
