"""What stays slow: for each variant of `distill`, the least time that the device needs, and what every author takes.

The floor is one launch, or all inputs and outputs once at the memory's bandwidth, whichever is more.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from storage.records import Variant, dtype_of

LAUNCH_US = 1.2
"""What the smallest kernel takes in a CUDA graph on an H200."""
BANDWIDTH = 4.8e6
"""Bytes a microsecond: an H200's data sheet."""
_AUTHOR = "distill"


def floor_us(variant: Variant) -> float:
    """The least time of a variant's kernels that read all of its inputs, in microseconds."""
    moved = 0
    for one in (*variant.inputs, *variant.outputs):
        elements = math.prod(n for n, step in zip(one.shape, one.stride, strict=True) if step)
        moved += elements * dtype_of(one.dtype).itemsize
    return max(LAUNCH_US, moved / BANDWIDTH)


def floors(variants: Mapping[str, Variant], runs: Mapping[str, Sequence[dict]]) -> str:
    """A Markdown table of the variants of `distill`, those farthest from their floors first; empty where it ran none.

    `variants` are given by hash, `runs` are results rows by author.
    """
    right: dict[str, dict[str, float]] = defaultdict(dict)
    for name, rows in runs.items():
        for row in rows if name not in (_AUTHOR, "eager") else ():
            if (time := _candidate_us(row, "device")) is not None:
                right[row["variant_hash"]][name] = time
    lines = []
    for row in runs.get(_AUTHOR, ()):
        time = _candidate_us(row, "device")
        if time is None:
            continue
        floor = floor_us(variants[row["variant_hash"]])
        others = right.get(row["variant_hash"], {})
        best = min(others, key=others.__getitem__, default=None)
        how = "left to eager" if row["compiler"] == "eager" else "CUDA graph" if row["capture_used"] else "kernels"
        compared = f"{best} {others[best]:.1f}" if best else "-"
        cells = (row["sample"], row["variant_hash"][:8], how, f"{floor:.1f}", f"{time:.1f}", f"{time / floor:.1f}")
        lines.append((time / floor, "| " + " | ".join((*cells, compared)) + " |"))
    if not lines:
        return ""
    head = (
        f"Microseconds on the device. Floor: one launch, or inputs and outputs once at {BANDWIDTH / 1e6} TB/s.",
        "",
        f"| sample | variant | {_AUTHOR} | floor | takes | times the floor | fastest other that is right |",
        "|---|---|---|---|---|---|---|",
    )
    return "\n".join([*head, *(line for _, line in sorted(lines, reverse=True))]) + "\n"


def _candidate_us(row: dict, clock: str) -> float | None:
    """The time of a call by this clock; None where the variant is wrong or was not timed."""
    if row["status"] != "ok" or row["t_min"] is None or row["t_min"] > -5:
        return None
    return next((t["candidate_us"] for t in row["timings"] if t["clock"] == clock), None)
