"""What a check of a pass has found, whichever way it was made."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.learning.reward import LEVEL
from passbench.result import VariantResult
from passbench.score import geometric_mean

BY_INTERPRETER = "cpu interpreter"
BY_OWN_PROCESS = "PassBench's draws, in one process"
BY_PASSBENCH = "PassBench"
"""What a row says of how it was checked; the device stands in another column."""


@dataclass(frozen=True)
class Checked:
    """What came of a check: `fault` says what is wrong with the pass, empty if it is right, and `cause` why it was not
    checked. `level` and speedups are the worst and the geometric mean over `variants`. `phases`: seconds of PassBench's
    stages in the last variant."""

    fault: str = ""
    cause: str = ""
    checked: str = ""
    device: str = ""
    variants: int = 0
    level: int | None = None
    speedup_e2e: float | None = None
    speedup_device: float | None = None
    phases: Mapping[str, float] | None = None


def checked(results: Sequence[VariantResult], by: str, *, timed: bool) -> Checked:
    """What results of a pass say; times count if they were taken alone."""
    for result in results:
        if result.status != "ok" or result.t_min is None or result.t_min > LEVEL:
            status = result.status if result.status != "ok" else f"right at t = {result.t_min} only"
            return Checked(f"{status}: {result.reason}", device=result.device)
    of_clock = {clock: [r.speedup(clock) for r in results] for clock in ("e2e", "device")}
    means = {
        clock: geometric_mean(each) if timed and results[0].times_meaningful and all(each) else None
        for clock, each in of_clock.items()
    }
    level = max(result.t_min for result in results)
    first, last = results[0], results[-1]
    return Checked("", "", by, first.device, len(results), level, means["e2e"], means["device"], last.phases)


def judged_graphs(record: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """The graphs of the verdicts of a file of `oracle_rewards`, or of a record of several runs, and whether they earned
    anything."""
    for run in record.get("runs", {"": record}).values():
        yield from ((verdict["graph"], verdict["reward"] > 0) for verdict in run["verdicts"])


def found_right(record: Mapping[str, Any]) -> set[str]:
    """The graphs whose passes a record of `recheck` or of `oracle_rewards` has found right, in hundreds of draws."""
    if "of_each" in record:
        return {graph for graph, fault in record["of_each"].items() if not fault}
    return {graph for graph, earns in dict(judged_graphs(record)).items() if earns}
