"""The ways of running a graph, measured: which are right, what each takes, and the fastest of them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import torch

from passbench.models.agreement import ModelErrors, Reference, reference
from passbench.models.call_times import call_times
from passbench.models.first_unlike import first_unlike
from passbench.models.lowering import GraphCall, LoweredGraph, Serve, lower
from passbench.models.recipes import Recipe
from passbench.models.replayed import NotCaptured, ReplayedGraph, captured_in
from passbench.models.warm_start.beside_capture import wait_for_gpu_thread
from passbench.models.warm_start.planned_convolutions import PlannedConvolutions
from storage.errors import PassNetError, in_one_line

ENOUGH = 0.98
"""A recipe replaces a simpler one where it takes less than this share of its time."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Trial:
    """What became of a recipe: `us` is the median time of a call in microseconds, None where it was not right or did
    not run, which `reason` tells. `seconds` is what compiling, checking and capturing took."""

    recipe: Recipe
    us: float | None
    reason: str
    errors: ModelErrors | None
    served: dict[str, int]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """As plain data; `from_json` reads it."""
        return {**asdict(self), "recipe": self.recipe.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """From what `to_json` gave."""
        errors = None if data["errors"] is None else ModelErrors(**data["errors"])
        return cls(**{**data, "recipe": Recipe.from_json(data["recipe"]), "errors": errors})


@dataclass(frozen=True)
class RunningGraph:
    """A recipe at work: `call(*moving)` gives the graph's outputs; `replayed` is its CUDA graph, if it is one."""

    recipe: Recipe
    call: Callable[..., Sequence[torch.Tensor]]
    lowered: LoweredGraph
    replayed: ReplayedGraph | None


def start(
    given: GraphCall,
    recipe: Recipe,
    serve: Serve | None = None,
    lowered: LoweredGraph | None = None,
    planned: PlannedConvolutions | None = None,
) -> RunningGraph:
    """A recipe made ready for calls, its CUDA graph captured by the thread that has `planned` its convolutions, if
    given. Raises what the compiler raises, or NotCaptured."""
    lowered = lowered or lower(given, recipe, serve)
    if not recipe.graphed:
        return RunningGraph(recipe, lowered.call, lowered, None)
    if planned is None:
        wait_for_gpu_thread(given.device)
        replayed = ReplayedGraph(lowered.call, given.moving)
    else:
        replayed = captured_in(planned.thread, planned.calling(lowered.call), given.moving)
    return RunningGraph(recipe, replayed, lowered, replayed)


def choose(
    given: GraphCall,
    candidates: Sequence[Recipe],
    *,
    strict: bool = False,
    double: bool = True,
    serve: Serve | None = None,
    seconds: float | None = None,
    progress: Progress | None = None,
    before_timing: Callable[[], None] | None = None,
) -> tuple[RunningGraph, list[Trial]]:
    """Try recipes in order and keep the fastest that is right. `seconds`: no further one is begun after that time.

    `before_timing` is called when all are ready. A recipe that fails is left out; its trial says why, with `strict`
    also which part of the graph has not eager's bits. Raises PassNetError if none works, eager among them.
    """
    begin = time.monotonic()
    truth = reference(given.module, given.moving, given.held, double=double and not strict)
    if progress is not None and double and not strict and truth.double is None:
        progress(f"without double precision, against eager's outputs alone: {truth.why_no_double}")
    trials: list[Trial] = []
    running: dict[str, RunningGraph] = {}
    lowered: dict[tuple, LoweredGraph] = {}
    for recipe in candidates:
        late = seconds is not None and time.monotonic() - begin > seconds
        if late and running:
            trials.append(Trial(recipe, None, f"not tried: the {seconds:.0f} s were over", None, {}, 0.0))
            continue
        if progress is not None:
            progress(recipe.name)
        trial, ready = _try(given, recipe, truth, lowered, strict, serve)
        trials.append(trial)
        if ready is not None:
            running[recipe.name] = ready
    if not running:
        raise PassNetError(f"no way of running the graph works: {'; '.join(t.reason for t in trials)}")
    if strict:
        parts: dict[tuple, str] = {}
        for number, trial in enumerate(trials):
            if trial.errors is not None and not trial.errors.equal:
                late = seconds is not None and time.monotonic() - begin > seconds
                if trial.recipe.lowering not in parts:
                    parts[trial.recipe.lowering] = "" if late else _unlike_part(given, trial.recipe, truth, serve)
                trials[number] = replace(trial, reason=trial.reason + parts[trial.recipe.lowering])
    if before_timing is not None:
        before_timing()
    times = call_times({name: _calling(each, given) for name, each in running.items()}, given.device)
    trials = [trial if trial.recipe.name not in times else _timed(trial, times[trial.recipe.name]) for trial in trials]
    return running[_fastest(times)], trials


def _try(
    given: GraphCall,
    recipe: Recipe,
    truth: Reference,
    lowered: dict[tuple, LoweredGraph],
    strict: bool,
    serve: Serve | None,
) -> tuple[Trial, RunningGraph | None]:
    begin = time.monotonic()
    try:
        if recipe.lowering not in lowered:
            lowered[recipe.lowering] = lower(given, recipe, serve)
        made = lowered[recipe.lowering]
        if recipe.passes and not made.served:
            return Trial(recipe, None, "no pass of the library matches", None, {}, time.monotonic() - begin), None
        ready = start(given, recipe, lowered=made)
        errors = truth.of(ready.call, strict=strict)
    except NotCaptured as error:
        return Trial(recipe, None, str(error), None, {}, time.monotonic() - begin), None
    except Exception as error:  # compilers, kernels and passes may raise anything: the reason is kept
        return Trial(recipe, None, in_one_line(error), None, {}, time.monotonic() - begin), None
    trial = Trial(recipe, None, errors.reason, errors, made.served, time.monotonic() - begin)
    return trial, None if errors.reason else ready


def _unlike_part(given: GraphCall, recipe: Recipe, truth: Reference, serve: Serve | None) -> str:
    try:
        return f"; the first part that has not: {first_unlike(given, recipe, truth.draws, serve)}"
    except Exception as error:  # compilers, kernels and passes may raise anything, for want of memory too
        return f"; which part has not is unknown: {in_one_line(error)}"


def _calling(running: RunningGraph, given: GraphCall) -> Callable[[], object]:
    return lambda: running.call(*given.moving)


def _timed(trial: Trial, us: float) -> Trial:
    return replace(trial, us=us)


def _fastest(times: dict[str, float]) -> str:
    """The fastest; of those that take about as long, the first."""
    best = next(iter(times))
    for name, us in times.items():
        if us < ENOUGH * times[best]:
            best = name
    return best
