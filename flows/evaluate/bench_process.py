"""A bench in a process of its own. What others do does not disturb its clock, and the run survives its end.

A `ProcessPoolExecutor` with one worker starts the process and carries calls, results and exceptions. The processes of
all devices are forks of one that has imported torch.
"""

import contextlib
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextvars import copy_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import torch

from flows.evaluate import bench_worker
from flows.steps import say
from passbench.bench import Bench
from passbench.result import VariantResult
from passbench.settings import Settings
from passbench.workers.fork_server_client import shared_server
from passbench.workers.preloaded_forks import forks_with
from storage.records import Sample

T = TypeVar("T")
R = TypeVar("R")

_FORKS = forks_with("flows.evaluate.bench_worker", "torch._dynamo", "agent.run.evaluation_run", "storage.parquet")
_TRIES = 3
_LOOKS, _LOOK_SECONDS = 30, 0.1


class Lost(Exception):
    """The process is gone, and what it was at work on with it."""


class BenchProcess:
    """The bench of one device. `cores`: those that the process and its workers keep to.

    One thread at a time uses it. After `Lost` it is dead until it is started again.
    """

    def __init__(self, device: str, settings: Settings, cores: set[int]) -> None:
        self.name, self.settings, self.cores = device, settings, cores
        self.device = torch.device("cpu") if device == "cpu" else torch.device(device)
        self.alive = False
        self._context = copy_context()  # of the flow run, to whose log the process speaks
        self._pool: ProcessPoolExecutor | None = None
        self._scratch: Path | None = None
        self._pid = 0
        self._step: Callable | None = None  # that the process has

    def start(self, step: Callable[[Bench, Any], Any] | None = None) -> None:
        """Start the process, another one if there was one, and show that its device works; `step` is what will be
        called. Raises PassNetError or Lost where it does not work."""
        self.close()
        self._scratch = Path(tempfile.mkdtemp(prefix="passnet-bench-"))
        heard, says = _FORKS.Pipe(duplex=False)
        given = (dict(os.environ), str(self._scratch), self.cores, says, shared_server().lend())
        self._pool = ProcessPoolExecutor(1, mp_context=_FORKS, initializer=bench_worker.enter, initargs=given)
        self.alive, self._step = True, None
        opened = self._pool.submit(bench_worker.open_bench, self.name, self.settings)  # this starts the process
        says.close()
        threading.Thread(target=self._context.copy().run, args=(_repeat, heard), daemon=True).start()
        try:
            self._pid = self._result(opened)
            if step is not None:
                self._load(step)
        except Exception:
            self.alive = False
            raise

    def call(self, step: Callable[[Bench, T], R], item: T) -> R:
        """`step(bench, item)` there. The step is sent once, and keeps its state for the items that follow.

        Raises what it raises, and Lost.
        """
        if step is not self._step:
            self._load(step)
        return self._result(self._submit(bench_worker.run_step, item))

    def run(
        self, sample: Sample, compiler: str, pass_dir: str | Path | None = None, progress: object = None
    ) -> Iterator[VariantResult]:
        """As `Bench.run`, for an author that works in this process; a process that is lost is replaced, and the sample
        begun again. Raises Lost where that does not help."""
        for left in reversed(range(_TRIES)):
            try:
                results = self._result(self._submit(bench_worker.run_sample, sample, compiler, pass_dir))
            except Lost:
                if not left:
                    raise
                self.start()
            else:
                yield from results
                return

    def kill(self) -> None:
        """End the process at once; whoever waits for it meets Lost."""
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def close(self) -> None:
        """End the process and remove its files."""
        if self._pool is not None:
            with contextlib.suppress(Lost):
                if self.alive and self._pid:
                    self._result(self._submit(bench_worker.close_bench))
            self._pool.shutdown(wait=False)  # it has nothing left to do, and takes seconds to unload torch
            self._pool, self._pid, self.alive = None, 0, False
        if self._scratch is not None:
            _remove(self._scratch)

    def _load(self, step: Callable[[Bench, Any], Any]) -> None:
        self._result(self._submit(bench_worker.load_step, step))
        self._step = step

    def _submit(self, function: Callable, *arguments: Any) -> Any:
        try:
            return self._pool.submit(function, *arguments)
        except BrokenProcessPool as error:
            raise self._lost() from error

    def _result(self, future: Any) -> Any:
        try:
            return future.result()
        except BrokenProcessPool as error:
            raise self._lost() from error

    def _lost(self) -> Lost:
        self.alive = False
        return Lost(f"the benchmark's process on {self.name} ended")


def _remove(directory: Path) -> None:
    """Remove a directory. Workers of a process that was killed get the time to end, and to close their files."""
    for _ in range(_LOOKS):
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            return
        time.sleep(_LOOK_SECONDS)


def _repeat(heard: Connection) -> None:
    """Say here what the process says there, until it ends."""
    with contextlib.suppress(EOFError):
        while True:
            message, level, ids = heard.recv()
            say(message, level, **ids)
