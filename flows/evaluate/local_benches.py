"""The benches of this host: the CPU's in this process, or one a device in processes of their own, side by side.

Work is lots, handed to whichever device is free by Prefect's thread pool, or the standard library's outside a flow.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from queue import SimpleQueue
from typing import Any, Self, TypeVar

import torch
from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.context import FlowRunContext
from prefect.task_runners import ThreadPoolTaskRunner

from flows.evaluate.bench_process import BenchProcess, Lost
from flows.evaluate.benches import Step, Use
from flows.evaluate.devices import core_shares
from flows.steps import each, say
from passbench.bench import Bench
from passbench.settings import Settings
from storage.errors import PassNetError

T = TypeVar("T")
R = TypeVar("R")


class OneBench:
    """The CPU's bench in this process: one lot after another."""

    kind, count = "cpu", 1

    def __init__(self, settings: Settings) -> None:
        self._bench, self._use = Bench("cpu", settings), Use("cpu")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._bench.close()

    def map(self, step: Step, lots: Sequence[T], name: str, *, here: bool = False) -> Iterator[R | None]:
        """As `Benches.map`; nothing is ever lost."""
        begin = time.monotonic()
        for done in each(lambda number: step(self._bench, lots[number]), range(len(lots)), name):
            self._use.lots += 1
            self._use.seconds, begin = self._use.seconds + time.monotonic() - begin, time.monotonic()
            yield done

    def uses(self) -> list[dict]:
        """As `Benches.uses`."""
        return [asdict(self._use)]


class BenchProcesses:
    """One process for each device, started when it is first needed. A process that ends is replaced. Where that fails,
    the others go on without its device."""

    def __init__(self, devices: Sequence[str], settings: Settings) -> None:
        shares = core_shares(len(devices))
        self.kind, self.count = torch.device(devices[0]).type, len(devices)
        self._processes = [BenchProcess(d, settings, cores) for d, cores in zip(devices, shares, strict=True)]
        self._uses = {process: Use(process.name) for process in self._processes}
        self._idle: SimpleQueue[BenchProcess | None] = SimpleQueue()
        for process in self._processes:
            self._idle.put(process)
        self._left, self._gone, self._lock, self._closing = self.count, "", threading.Lock(), False
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for process in self._processes:
                stack.callback(process.close)
            runner = ThreadPoolTaskRunner(self.count) if FlowRunContext.get() else ThreadPoolExecutor(self.count)
            self._runner = stack.enter_context(runner)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._closing = True
        if kind is not None:  # interrupted, or timed out: nobody waits for what has begun
            for process in self._processes:
                process.kill()
        self._stack.__exit__(kind, *rest)

    def map(self, step: Step, lots: Sequence[T], name: str, *, here: bool = False) -> Iterator[R | None]:
        """As `Benches.map`. Raises PassNetError where no device is left."""

        def one(number: int) -> R | None:
            process = self._take(None if here else step)
            use, begin = self._uses[process], time.monotonic()
            try:
                done = step(process, lots[number]) if here else process.call(step, lots[number])
            except Lost as lost:
                use.lost += 1
                if not self._closing:
                    say(f"{lost}; others take over")
                return None
            finally:
                use.seconds += time.monotonic() - begin
                self._idle.put(process)
            use.lots += 1
            return done

        yield from _finished(self._submitter(one, name), len(lots))

    def uses(self) -> list[dict]:
        """As `Benches.uses`."""
        return [asdict(use) for use in self._uses.values()]

    def _submitter(self, one: Callable[[int], R], name: str) -> Callable[[int], Any]:
        if isinstance(self._runner, ThreadPoolExecutor):
            return partial(self._runner.submit, one)
        run = task(one, name=name, cache_policy=NO_CACHE, persist_result=False)
        return lambda number: self._runner.submit(run, {"number": number})

    def _take(self, step: Step | None) -> BenchProcess:
        """A process that is idle, started if it is not alive."""
        while True:
            process = self._idle.get()
            if process is None or self._closing:
                self._idle.put(process)
                raise PassNetError(f"no device is left: {self._gone}")
            if process.alive:
                return process
            begin = time.monotonic()
            try:
                process.start(step)
                self._uses[process].start_seconds += time.monotonic() - begin
                return process
            except (Lost, PassNetError, RuntimeError) as error:  # as torch says that a GPU is gone
                say(f"{process.name} does not start: {error}")
                with self._lock:
                    self._left -= 1
                    if not self._left:
                        self._gone = str(error)
                        self._idle.put(None)


def _finished(submit: Callable[[int], Any], count: int) -> Iterator[Any]:
    """Results of `submit(0)` to `submit(count - 1)` as they come. Where one raises, others that have begun end first.

    `submit` returns a future of the standard library, or Prefect's future around one.
    """
    submitted = [submit(number) for number in range(count)]
    futures = {getattr(one, "wrapped_future", one): one for one in submitted}
    for future in as_completed(futures):
        try:
            result = futures[future].result()
        except Exception:
            for other in futures:
                other.cancel()
            wait(futures)
            raise
        yield result
