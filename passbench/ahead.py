"""Compiling and loading ahead: what a worker does once, done by several workers at a time, before anything is timed."""

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue

import torch

from passbench import layout as lay
from passbench.inputs import Distribution, InputError
from passbench.process import WorkerDied, WorkerTimeout
from passbench.side import Side
from passbench.wire import Code, Describe, Load, Warm
from storage.graph_json import to_json
from storage.records import Variant

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """Variants that one worker is to call once each, under a compiler, "pass" with its directory. The worker of a pass
    is warmed first, and stays so where there are no variants."""

    side: Side
    variants: Sequence[Variant]
    compiler: str
    pass_dir: str | None = None


def together(jobs: Sequence[Job]) -> None:
    """All jobs at a time, one worker each."""
    if jobs:
        with ThreadPoolExecutor(len(jobs)) as pool:
            list(pool.map(_call_all, jobs))


def shared(sides: Sequence[Side], variants: Sequence[Variant], compiler: str, progress: Progress | None) -> None:
    """Each variant in whichever worker is free; for workers that share a directory, and the compiler caches in it."""
    idle: SimpleQueue[Side] = SimpleQueue()
    for side in sides:
        idle.put(side)

    def one(numbered: tuple[int, Variant]) -> None:
        side = idle.get()
        try:
            _call_all(Job(side, [numbered[1]], compiler))
        finally:
            idle.put(side)
        if progress is not None:
            progress(f"{compiler}: compiled {numbered[0]}/{len(variants)}")

    with ThreadPoolExecutor(len(sides)) as pool:
        list(pool.map(one, enumerate(variants, 1)))


def _call_all(job: Job) -> None:
    """What fails here, for want of memory too, is left to the benchmark, which meets it again and records it."""
    with suppress(WorkerDied, WorkerTimeout, torch.OutOfMemoryError):
        if job.pass_dir is not None:
            job.side.ask(Warm(), job.side.settings.first_call_timeout)
        for variant in job.variants:
            if not _call_once(job, variant):
                job.side.recover()


def _call_once(job: Job, variant: Variant) -> bool:
    side, settings = job.side, job.side.settings
    layout = lay.lay_out(variant.inputs, (), 1, random.Random(0))
    if layout.end > settings.arena_bytes:
        return True
    side.reserve(layout.end)
    load = Load(to_json(variant.graph), job.compiler, job.pass_dir)
    if side.ask(load, settings.load_timeout).code is not Code.OK:
        return False
    try:
        lay.draw(side.memory, layout, variant.inputs, 0, 0, Distribution.NORMAL)
    except InputError:
        return True
    if side.device.type == "cuda":
        torch.cuda.synchronize(side.device)
    timeout = settings.first_call_timeout if job.pass_dir is None else settings.call_timeout
    return side.ask(Describe(layout.batch, 0), timeout).code is Code.OK
