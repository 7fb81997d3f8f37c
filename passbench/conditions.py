"""What must stand beside a table of speeds: GPU, versions, numerics of the baseline, and how noisy the times are."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Conditions(NamedTuple):
    """Of several rows of the results table; fields as the columns of `storage.schema.SCORES`."""

    gpu: str
    torch: str
    triton: str
    numerics: str
    noisy_share: float | None
    from_kernels: float | None

    def __str__(self) -> str:
        """One line for a table's caption."""
        parts = [self.gpu or "an unknown device"]
        parts += [f"{name} {version}" for name in ("torch", "triton") if (version := getattr(self, name))]
        parts += [f"{self.numerics} numerics"] if self.numerics else []
        parts += [] if self.noisy_share is None else [f"{self.noisy_share:.0%} noisy"]
        parts += [f"{self.from_kernels:.0%} timed by kernels"] if self.from_kernels else []
        return ", ".join(parts)


def conditions(rows: Sequence[Mapping[str, Any]], clock: str) -> Conditions:
    """Conditions of rows of the results table by the clock "e2e" or "device".

    Rows of versions that knew less have nulls or lack columns: what they do not say is empty, shares of nothing None.
    """
    libraries = [dict(row.get("libraries") or ()) for row in rows]
    timings = [t for row in rows for t in row.get("timings") or () if t["clock"] == clock]
    methods = [row.get("device_method") for row in rows if clock == "device" and row.get("device_method")]
    return Conditions(
        _several(row.get("device") for row in rows),
        _several(known.get("torch") for known in libraries),
        _several(known.get("triton") for known in libraries),
        _several(row.get("numerics") for row in rows),
        sum(t["noisy"] for t in timings) / len(timings) if timings else None,
        sum(method != "graph" for method in methods) / len(methods) if methods else None if clock == "device" else 0.0,
    )


def _several(values: Any) -> str:
    return ", ".join(sorted({value for value in values if value}))
