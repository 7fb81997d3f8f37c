"""What a process of `run_models.py` does: build one model, get all regimes ready, wait for its turn, time them."""

import argparse
import contextlib
import fcntl
import functools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.models.turns import say_ready, say_row


class Job(NamedTuple):
    """A model, dtype and batch size in these regimes."""

    model: str
    dtype: str
    batch: int
    regimes: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str, int]:
        """What two jobs have in common that differ in their regimes alone."""
        return self.model, self.dtype, self.batch


def run_job(job: Job, options: argparse.Namespace) -> None:
    """Measure, and say the row; a model that fails has a row that says why."""
    import torch

    from benchmarks.models.model_list import MODELS, prepared
    from passbench.models.measured_model import failed_row, measure_model
    from passbench.models.optimized_model import OptimizeSettings
    from storage.errors import in_one_line
    from storage.versions.provenance import source_commit

    dtype = getattr(torch, job.dtype)
    begin = time.monotonic()
    asked: list[bool] = []

    def turn() -> None:
        if not asked:
            asked.append(True)
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            say_ready()

    try:
        if torch.cuda.is_available():
            _benchmarks_in_turn(options.cache)
        (found,) = [model for model in MODELS if model.name == job.model]
        model, args, kwargs = prepared(found, job.batch, dtype, torch.device(options.device))
        row = measure_model(
            job.model,
            model,
            args,
            kwargs,
            OptimizeSettings(
                effort=options.effort,
                strict=options.strict,
                double=not options.no_double,
                library=options.library,
                without=tuple(part for part in options.without.split(",") if part),
            ),
            run="",
            batch=job.batch,
            regimes=job.regimes,
            commit=source_commit(),
            before_timing=turn,
        )
    except Exception as error:  # a model of another version of its library may raise anything
        import traceback

        traceback.print_exc()
        row = failed_row(job.model, "", job.batch, dtype, in_one_line(error), time.monotonic() - begin)
    say_row(row)


def _benchmarks_in_turn(cache: Path) -> None:
    """TorchInductor's benchmarks of its own kernels wait for those of other processes on this GPU: side by side they
    would choose by each other's load."""
    import torch
    from torch._inductor.runtime.benchmarking import benchmarker

    lock = cache / f"gpu-{torch.cuda.get_device_properties(0).uuid}.lock"
    measure: Callable[..., Any] = benchmarker.benchmark_gpu

    @functools.wraps(measure)
    def alone(*args: Any, **kwargs: Any) -> Any:
        with lock.open("w") as file, contextlib.ExitStack() as stack:
            fcntl.flock(file, fcntl.LOCK_EX)
            stack.callback(fcntl.flock, file, fcntl.LOCK_UN)
            return measure(*args, **kwargs)

    benchmarker.benchmark_gpu = alone


def job_from(text: str) -> Job:
    """From what `json.dumps` makes of a job."""
    model, dtype, batch, regimes = json.loads(text)
    return Job(model, dtype, batch, tuple(regimes))
