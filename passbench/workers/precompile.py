"""Compiling and loading ahead: what a worker does once, done by several workers at a time, before anything is timed."""

import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

import torch

from passbench.inputs import batch_layout as lay
from passbench.inputs.distribution import Distribution
from passbench.inputs.draw import InputError
from passbench.ipc.messages import Code, Describe, Load, Warm, WorkerReply
from passbench.workers.one_thread import one_thread
from passbench.workers.worker_handle import WorkerHandle
from passbench.workers.worker_process import WorkerDied, WorkerTimeout
from storage.graph.as_json import to_json
from storage.records import Variant

NO_TIME = "no time was left"
"""Why a variant was missed that no worker has come to."""


@dataclass(frozen=True)
class Job:
    """Variants that one worker is to call once each, under a compiler, "pass" with its directory. The worker of a pass
    is warmed first, and stays so where there are no variants. A baseline's call may take `patience` times as long as
    when it has the machine to itself, but not beyond `deadline`. `keep`: the worker keeps what it has compiled
    before."""

    worker: WorkerHandle
    variants: Sequence[Variant]
    compiler: str
    pass_dir: str | None = None
    patience: float = 1.0
    deadline: float = inf
    keep: bool = False


@one_thread()
def together(jobs: Sequence[Job]) -> None:
    """All jobs at a time, one worker each."""
    if jobs:
        with ThreadPoolExecutor(len(jobs)) as pool:
            list(pool.map(_call_all, jobs))


class Missed(NamedTuple):
    """A variant that was not compiled ahead, and why."""

    variant: Variant
    reason: str


@one_thread()
def in_order(jobs: Sequence[Job], threads: int, deadline: float) -> list[tuple[Job, list[Missed]]]:
    """All jobs in order, `threads` at a time, none begun after `deadline` (`time.monotonic`), each with what it missed.

    Workers of baselines share directories, and the compiler caches in them.
    """
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda job: _in_time(job, threads, deadline), jobs))


@one_thread()
def by_worker(queues: Sequence[Sequence[Job]], deadline: float, grace: float = 0.0) -> list[tuple[Job, list[Missed]]]:
    """As `in_order`, where each queue has the jobs of one worker, and all workers are at work at a time. What is begun
    may take `grace` seconds beyond the deadline, since a worker that is ended loses all that it keeps."""

    def run(queue: Sequence[Job]) -> list[tuple[Job, list[Missed]]]:
        return [_in_time(job, len(queues), deadline, grace) for job in queue]

    with ThreadPoolExecutor(max(1, len(queues))) as pool:
        return [one for done in pool.map(run, queues) for one in done]


@one_thread()
def shared_out(
    workers: Sequence[WorkerHandle], jobs: Sequence[tuple[str, Variant]], deadline: float, grace: float = 0.0
) -> list[tuple[Job, list[Missed]]]:
    """As `by_worker`, each job, a compiler and a variant, for the first worker that is free and has no other compiler's
    code of that variant. Workers keep what they compile. With fewer workers than
    compilers some jobs are nobody's, and in no result."""
    left, taking = list(jobs), threading.Lock()

    def take(held: set[str]) -> tuple[str, Variant] | None:
        with taking:
            number = next((n for n, (_, one) in enumerate(left) if one.variant_hash not in held), None)
            return None if number is None else left.pop(number)

    def run(worker: WorkerHandle) -> list[tuple[Job, list[Missed]]]:
        held: set[str] = set()
        done = []
        while (taken := take(held)) is not None:
            compiler, variant = taken
            held.add(variant.variant_hash)
            done.append(_in_time(Job(worker, (variant,), compiler, keep=True), len(workers), deadline, grace))
        return done

    with ThreadPoolExecutor(len(workers)) as pool:
        return [one for done in pool.map(run, workers) for one in done]


def _in_time(job: Job, threads: int, deadline: float, grace: float = 0.0) -> tuple[Job, list[Missed]]:
    if time.monotonic() >= deadline:
        return job, [Missed(variant, NO_TIME) for variant in job.variants]
    return job, [Missed(*one) for one in _call_all(replace(job, patience=threads, deadline=deadline + grace))]


def _call_all(job: Job) -> list[tuple[Variant, str]]:
    """The variants that could not be called, with reasons. The benchmark calls them again and records the failure."""
    missed: dict[int, str] = {}
    number = 0
    try:
        if job.pass_dir is not None:
            job.worker.ask(Warm(), job.worker.settings.first_call_timeout)
        for number, variant in enumerate(job.variants):
            if problem := _call_once(job, variant):
                missed[number] = problem
                job.worker.recover()
    except (WorkerDied, WorkerTimeout, torch.OutOfMemoryError) as error:
        missed |= dict.fromkeys(range(number, len(job.variants)), f"{type(error).__name__}: {error}")
    return [(job.variants[number], problem) for number, problem in missed.items()]


def _call_once(job: Job, variant: Variant) -> str:
    """Why the variant could not be called; empty if it was."""
    worker, settings = job.worker, job.worker.settings
    layout = lay.lay_out(variant.inputs, (), 1, random.Random(0))
    if layout.end > settings.shared_bytes:
        return "one call's inputs are larger than PassBench's memory"
    worker.reserve(layout.end)
    load = Load(to_json(variant.graph), job.compiler, job.pass_dir, variant.variant_hash, job.keep)
    reply = worker.ask(load, settings.load_timeout)
    if reply.code is not Code.OK:
        return _why(reply)
    try:
        lay.draw(worker.memory, layout, variant.inputs, 0, 0, Distribution.NORMAL)
    except InputError as error:
        return str(error)
    if worker.device.type == "cuda":
        torch.cuda.synchronize(worker.device)
    timeout = settings.first_call_timeout * job.patience if job.pass_dir is None else settings.call_timeout
    timeout = min(timeout, max(1.0, job.deadline - time.monotonic()))
    reply = worker.ask(Describe(layout.batch, 0), timeout)
    return "" if reply.code is Code.OK else _why(reply)


def _why(reply: WorkerReply) -> str:
    return reply.text or reply.code.name
