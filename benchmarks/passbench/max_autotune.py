"""Max-autotune compiled ahead for the table (`benchmarks.passbench.baselines_table`), while nothing is timed.

A variant takes it half a minute of a core, since it compiles and times many kernels for each product and convolution.
So the cheapest come first, the categories in turn, unless there is time for all: then the dearest come first, so that
the last ones to be compiled are short. TorchInductor's cache spares it nothing in a later call: with the
graphs of 198 variants in its cache it took as long for them on a GPU (2.0 and 2.8 s a variant with 15 processes, 2.1
without).
"""

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from passbench.shared_bench import LOST, SharedBench
from passbench.workers.precompile import Missed
from storage.records import Sample, Variant

TUNED = "inductor-max-autotune"
GRACE = 12.0
"""Seconds that it may go on with what it has begun."""
_TEMPLATES = re.compile("linear|mm|matmul|conv|einsum|attention")
"""In the names of operators for which TorchInductor has templates with many configurations."""


def cost(variant: Variant) -> tuple[int, int]:
    """What orders variants by how long they take: the products and convolutions, then all operators."""
    names = [op.target for op in variant.graph.ops]
    return sum(_TEMPLATES.search(name) is not None for name in names), len(names)


def cheapest_first(samples: Iterable[Sample]) -> list[Sample]:
    """Samples of one variant, the cheapest of each category first, the categories in turn."""
    by_category = defaultdict(list)
    for sample in sorted(samples, key=lambda sample: cost(sample.variants[0])):
        by_category[sample.category].append(sample)
    return [one for turn in zip_longest(*by_category.values()) for one in turn if one is not None]


def dearest_first(samples: Iterable[Sample]) -> list[Sample]:
    """Samples of one variant, the dearest first, of all categories."""
    return sorted(samples, key=lambda sample: cost(sample.variants[0]), reverse=True)


def tune(bench: SharedBench, samples: Sequence[Sample], seconds: float, processes: int) -> list[tuple[str, Missed]]:
    """Have processes compile the samples in this order as far as there is time. What a process had compiled that had to
    be ended is in the cache of this call, and is read from there once more. Returns what was missed, with the
    compiler."""
    if not samples or seconds <= 0:
        return []
    variants = [sample.variants[0] for sample in samples]
    missed = bench.compile_all([TUNED], variants, processes, time.monotonic() + seconds, GRACE)
    lost = [one.variant for _, one in missed if one.reason == LOST]
    if lost:
        again = bench.compile_all([TUNED], lost, processes, time.monotonic() + GRACE / 2, GRACE / 2)
        missed = [*(one for one in missed if one[1].reason != LOST), *again]
    return missed
