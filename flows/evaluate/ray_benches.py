"""Benches on a Ray cluster: each lot is a Prefect task with a GPU, or a core, that Ray gives to nothing else.

Ray finds its cluster by RAY_ADDRESS; without one it starts one on this machine for as long as the run lasts. All hosts
see the data directory under the same path, and have PassNet installed.
"""

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.context import FlowRunContext

from flows.evaluate.benches import Step, Use
from flows.evaluate.devices import core_shares
from flows.steps import say
from passbench.bench import Bench
from passbench.settings import Settings
from storage.errors import PassNetError, installed_by

T = TypeVar("T")
R = TypeVar("R")


class RayBenches:
    """As `flows.evaluate.benches.Benches`. `device`: "auto" for all GPUs of the cluster, or "cpu:N" for N lots at a
    time on a cluster that it starts."""

    def __init__(self, device: str, settings: Settings) -> None:
        """Raises PassNetError where Ray is not installed, outside of a flow run, and for another device."""
        kind, _, count = device.partition(":")
        if device != "auto" and (kind != "cpu" or not (count or "1").isdigit()):
            raise PassNetError(f"Ray chooses the GPUs: device is auto or cpu:N with it, not {device!r}")
        if not FlowRunContext.get():
            raise PassNetError("with Ray evaluate-model runs as a flow: start its deployment, or call the flow itself")
        self.kind, self.count = ("cpu", int(count or 1)) if kind == "cpu" else ("cuda", 0)
        self._settings, self._stack = settings, ExitStack()
        self._uses: dict[str, Use] = {}

    def __enter__(self) -> Self:
        """Raises PassNetError where Ray is not installed, or its cluster has no GPU."""
        try:
            import ray
            from prefect_ray import RayTaskRunner
        except ImportError as error:
            raise PassNetError(f"Ray is not installed ({error}): {installed_by('pipeline,ray')}") from error
        own = {} if "RAY_ADDRESS" in os.environ else {"address": "local", "include_dashboard": False}
        if own and self.kind == "cpu":
            own["num_cpus"] = self.count
        with ExitStack() as stack:
            self._runner = stack.enter_context(RayTaskRunner(init_kwargs=own))
            if self.kind == "cuda":
                self.count = int(ray.cluster_resources().get("GPU", 0))
                if not self.count:
                    raise PassNetError("the Ray cluster has no GPU: use --device cpu:N to check correctness only")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(*error)

    def map(self, step: Step, lots: Sequence[T], name: str, *, here: bool = False) -> Iterator[R | None]:
        """As `Benches.map`. Raises PassNetError for a step that must run in this process."""
        import ray
        from prefect_ray.context import remote_options
        from ray.exceptions import RayError, RayTaskError

        if here:
            raise PassNetError("an author with a model has one budget for its run: run it without Ray")
        resources = {"num_cpus": 0, "num_gpus": 1} if self.kind == "cuda" else {"num_cpus": 1}
        with remote_options(**resources, max_retries=0):  # a lot that is lost is cut up by who asks
            pending = {}
            for lot in lots:
                run = task(
                    partial(_on_ray, step, self.kind, self._settings, lot),
                    name=name,
                    cache_policy=NO_CACHE,
                    persist_result=False,
                )
                future = self._runner.submit(run, {})
                pending[future.wrapped_future] = future
        while pending:
            (done,), _ = ray.wait(list(pending), num_returns=1)
            try:
                where, seconds, result = pending.pop(done).result()
            except RayTaskError:
                raise
            except RayError as error:  # the worker, or its host
                say(f"a benchmark's process ended ({type(error).__name__}); others take over")
                self._uses.setdefault("lost", Use("lost")).lost += 1
                yield None
                continue
            except Exception:
                for other in pending:
                    ray.cancel(other)
                raise
            use = self._uses.setdefault(where, Use(where))
            use.lots, use.seconds = use.lots + 1, use.seconds + seconds
            yield result

    def uses(self) -> list[dict]:
        """As `Benches.uses`; what was lost has no device."""
        return [asdict(use) for _, use in sorted(self._uses.items())]


def _on_ray(step: Step, kind: str, settings: Settings, lot: T) -> tuple[str, float, R]:
    """Where the lot was benchmarked, for how many seconds, and what the step returned."""
    begin, gpu = time.monotonic(), _gpu() if kind == "cuda" else None
    if gpu is not None:
        # Ray shows each task its GPU as number 0, by which PassBench would choose the same cores for all of them.
        gpus = max(gpu + 1, len(list(Path("/dev").glob("nvidia[0-9]*"))))
        os.sched_setaffinity(0, core_shares(gpus)[gpu])
    with Bench(kind, settings) as bench:
        result = step(bench, lot)
    where = socket.gethostname() + (f":{gpu}" if gpu is not None else "")
    return where, time.monotonic() - begin, result


def _gpu() -> int | None:
    import ray

    found = [str(number) for number in ray.get_gpu_ids()]
    return int(found[0]) if len(found) == 1 and found[0].isdigit() else None
