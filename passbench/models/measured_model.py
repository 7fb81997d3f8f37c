"""One model in all regimes: a row of `storage.schema.MODEL_RESULTS`.

Regimes are what a user has: the model itself, torch.compile in three modes, and `passnet.optimize`. Each is made ready
and checked first; then their calls are timed in turn, so that all see the same machine.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from passbench.models.agreement import ModelErrors
from passbench.models.call_times import back_to_back, call_times, node_times
from passbench.models.choosing import Trial
from passbench.models.graph_facts import calls_of
from passbench.models.optimize import optimize_model
from passbench.models.optimized_model import OptimizedModel, OptimizeSettings
from passbench.models.recipes import PARTS
from passbench.result import device_name, libraries
from storage.errors import in_one_line

MODES = {"compile": "default", "reduce-overhead": "reduce-overhead", "max-autotune": "max-autotune"}
"""Regime → mode of torch.compile."""
REGIMES = ("eager", *MODES, "ours")
SECONDS_EACH = 0.25
"""Time that the timed calls of each regime take, about."""


def measure_model(
    name: str,
    model: torch.nn.Module,
    args: tuple,
    kwargs: Mapping[str, Any],
    settings: OptimizeSettings,
    *,
    run: str,
    batch: int,
    regimes: Sequence[str] = REGIMES,
    commit: str | None = None,
    before_timing: Callable[[], None] = lambda: None,
    **others: Any,
) -> dict[str, Any]:
    """The row of a model in evaluation mode, on the device and in the dtype that it has.

    `before_timing` is called before anything is timed, perhaps twice, for whoever lets only one process use the GPU. A
    regime that fails has a reason instead of a time. `others` are for `optimize_model`. Raises what the model itself
    raises.
    """
    begin = time.monotonic()
    parameter = next(model.parameters())
    device = parameter.device
    row = _empty(name, run, batch, parameter.dtype, settings.strict, device, commit)

    def make(regime: str) -> Callable:
        if regime == "ours":
            return optimize_model(model, args, kwargs, settings, before_timing=before_timing, **others)
        return _regime(model, regime)

    with torch.no_grad():
        expected = _tensors(model(*args, **kwargs))
        made, found = {}, {}
        for regime in regimes:
            made[regime], found[regime] = _made_ready(regime, make, args, kwargs, expected)
        before_timing()
        calls = {regime: _call(one, args, kwargs) for regime, one in made.items() if one is not None}
        for regime, us in call_times(calls, device, SECONDS_EACH * len(calls)).items():
            found[regime] |= {"us": us, "queued_us": back_to_back(calls[regime], device)}
    if (ours := made.get("ours")) is not None:
        row |= _of_ours(ours, found["ours"])
    else:
        row["reason"] = found.get("ours", {}).get("reason", "")
    trials = ours.report.trials if ours is not None else ()
    row["regimes"] = [*found.values(), *_ways(trials), *_switched_off(trials)]
    row |= _speedups(found)
    row["status"] = "failed" if row["reason"] and row["speedup_eager"] is None else "wrong" if row["reason"] else "ok"
    row["seconds"] = time.monotonic() - begin
    return row


def _made_ready(
    regime: str,
    make: Callable[[str], Callable],
    args: tuple,
    kwargs: Mapping[str, Any],
    expected: Sequence[torch.Tensor],
) -> tuple[Callable | None, dict[str, Any]]:
    """What a regime makes of the model, called until it has settled, and the regime's line; None where it failed or its
    results are wrong, with the reason in the line."""
    start = time.monotonic()
    line = {"regime": regime, "us": None, "queued_us": None, "error": None, "reason": ""}
    made = None
    try:
        one = make(regime)
        for _ in range(3):  # compiles, records and settles
            result = one(*args, **kwargs)
        _check(result, expected)
        del result  # whose memory a CUDA graph of torch.compile's could otherwise not use again
        made = one
    except Exception as error:  # compilers may raise anything; the row says so
        line["reason"] = in_one_line(error)
    line["seconds"] = time.monotonic() - start
    return made, line


def failed_row(name: str, run: str, batch: int, dtype: torch.dtype, reason: str, seconds: float) -> dict[str, Any]:
    """The row of a model that could not be measured at all."""
    empty = _empty(name, run, batch, dtype, False, torch.device("cpu"), None)
    return {**empty, "device": "", "status": "failed", "reason": reason, "seconds": seconds}


def _regime(model: torch.nn.Module, regime: str) -> Callable:
    if regime == "eager":
        return model
    mode = MODES[regime]
    return torch.compile(model, dynamic=False, **({} if mode == "default" else {"mode": mode}))


def _call(function: Callable, args: tuple, kwargs: Mapping[str, Any]) -> Callable[[], object]:
    return lambda: function(*args, **kwargs)


def _empty(
    name: str, run: str, batch: int, dtype: torch.dtype, strict: bool, device: torch.device, commit: str | None
) -> dict[str, Any]:
    nothing = dict.fromkeys(
        "speedup_eager speedup_compiled covered covered_time ops t_min error_eager error level_eager level".split()
    )
    return {
        "run": run,
        "model": name,
        "batch": batch,
        "dtype": str(dtype).removeprefix("torch."),
        "mode": "inference",
        "status": "ok",
        "reason": "",
        "chosen": "",
        "why_not": "",
        "regimes": [],
        "served": {},
        **nothing,
        "strict": strict,
        "device": device_name(device),
        "times_meaningful": device.type == "cuda",
        "seconds": 0.0,
        "libraries": libraries(),
        "commit": commit,
    }


def _of_ours(ours: OptimizedModel, regime: dict[str, Any]) -> dict[str, Any]:
    report = ours.report
    said: dict[str, Any] = {"chosen": report.name, "why_not": report.why_not}
    chosen = next((trial for trial in report.trials if trial.recipe.name == report.name), None)
    if chosen is not None and chosen.errors is not None:
        errors: ModelErrors = chosen.errors
        said |= {"t_min": errors.t_min, "error_eager": errors.error_eager, "error": errors.error}
        said |= {"level_eager": errors.level_eager, "level": errors.level, "served": dict(chosen.served)}
        regime["error"] = errors.error
    if report.ops:
        said |= {"ops": report.ops, "covered": report.covered / report.ops, "covered_time": _covered_time(ours)}
    if ours.fallbacks:
        said["reason"] = f"{ours.fallbacks} calls went to the model itself"
    return said


def _covered_time(ours: OptimizedModel) -> float | None:
    """The share of eager's time that the operators take which passes serve."""
    if not ours.lowered.replaced:
        return 0.0
    calls = {node.name for node in calls_of(ours.given.module.graph)}
    times = node_times(ours.given.module, [*ours.given.moving, *ours.given.held])
    total = sum(times.get(name, 0.0) for name in calls)
    return sum(times.get(name, 0.0) for name in ours.lowered.replaced) / total if total else None


def _switched_off(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """The best way without each part that some way has: what the part gives is how much longer that takes."""
    timed = [trial for trial in trials if trial.us is not None]
    lines = []
    for part in PARTS:
        rest = [trial.us for trial in timed if not trial.recipe.uses(part)]
        if rest and len(rest) < len(timed):
            nothing = {"queued_us": None, "error": None, "seconds": None, "reason": ""}
            lines.append({"regime": f"without:{part}", "us": min(rest), **nothing})
    return lines


def _ways(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    return [
        {
            "regime": f"ours:{trial.recipe.name}",
            "us": trial.us,
            "queued_us": None,
            "error": trial.errors.error if trial.errors else None,
            "seconds": trial.seconds,
            "reason": trial.reason,
        }
        for trial in trials
    ]


def _speedups(found: Mapping[str, Mapping[str, Any]]) -> dict[str, float | None]:
    mine = found.get("ours", {}).get("us")
    compiled = [found[regime]["us"] for regime in MODES if found.get(regime, {}).get("us")]
    eager = found.get("eager", {}).get("us")
    return {
        "speedup_eager": eager / mine if mine and eager else None,
        "speedup_compiled": min(compiled) / mine if mine and compiled else None,
    }


def _check(result: object, expected: Sequence[torch.Tensor]) -> None:
    """Raises ValueError where a regime gives other tensors than the model: their kinds, and NaN."""
    made = _tensors(result)
    if [(x.shape, x.dtype) for x in made] != [(x.shape, x.dtype) for x in expected]:
        raise ValueError("its outputs have other shapes or dtypes than eager's")
    for a, b in zip(made, expected, strict=True):
        if a.is_floating_point() and bool(torch.isnan(a).any()) != bool(torch.isnan(b).any()):
            raise ValueError("NaN where eager has none")


def _tensors(value: object) -> list[torch.Tensor]:
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
