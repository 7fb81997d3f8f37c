"""Rewards of many passes: a warm process for each device, side by side."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Self

import torch

from agent.learning.reward import LEVEL, SETTINGS, Files, Reward, check_terms
from agent.learning.reward_worker import receive, send
from passbench.settings import Settings
from passbench.workers.fork_server_client import shared_server
from passbench.workers.forked_program import ForkedProgram
from storage.errors import PassNetError
from storage.records import Sample

_TRIES = 2
"""How often a pass is tried whose benchmark's process ends."""

Job = tuple[Sample, Files]
"""A sample, and a pass for it."""


class Rewards:
    """Judges passes on one or several devices; a context manager, or `close` it.

    `devices`: names such as "cuda:0", or one name; by default every GPU, or the CPU where there is none. The same name
    twice gives two benchmarks at a time, which only the CPU allows. `level`, `clock`: as
    `agent.learning.reward.reward_of`. Processes start with the first job and stay warm. It may be used from several
    threads. Raises PassNetError for a device that is not there.
    """

    def __init__(
        self,
        devices: Sequence[str] | None = None,
        level: int = LEVEL,
        clock: str = "e2e",
        settings: Settings = SETTINGS,
    ) -> None:
        check_terms(level, clock)
        self.level, self.clock = level, clock
        self.devices = (devices,) if isinstance(devices, str) else tuple(devices or _all_devices())
        gpus = [str(torch.device("cuda", torch.device(d).index or 0)) for d in self.devices if d.startswith("cuda")]
        if len(set(gpus)) < len(gpus):
            raise PassNetError(f"{', '.join(self.devices)} has a GPU twice: what is timed must be alone on it")
        self._workers = [_Worker(device, settings) for device in self.devices]
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes; a further job starts them again."""
        for worker in self._workers:
            worker.close()

    def score(self, jobs: Sequence[tuple[Sample, Files | str]]) -> list[Reward]:
        """Rewards of the jobs, in their order. The same files at the same sample are judged once in a call.

        A pass whose benchmark's process ends twice earns 0. Raises PassNetError where a process cannot start, and for a
        directory that is not there.
        """
        jobs = [(sample, _given(files)) for sample, files in jobs]
        keys = [_key(sample, files) for sample, files in jobs]
        distinct = dict(zip(keys, jobs, strict=True))
        with ThreadPoolExecutor(len(self._workers)) as threads:
            done = dict(zip(distinct, threads.map(self._one, distinct.values()), strict=True))
        return [done[key] for key in keys]

    def __call__(self, sample: Sample, files: Files | str) -> Reward:
        """The reward of one pass."""
        return self._one((sample, _given(files)))

    def _one(self, job: Job) -> Reward:
        worker = self._idle.get()
        try:
            for _ in range(_TRIES):
                answer = worker.ask((*job, self.level, self.clock))
                if answer is not None:
                    break
        finally:
            self._idle.put(worker)
        if answer is None:
            return Reward(0.0, None, "runtime_error", f"the benchmark's process ended {_TRIES} times")
        if isinstance(answer, str):
            raise PassNetError(answer)
        return answer


class _Worker:
    """One device's process, started when it is first asked, and again after it has ended."""

    def __init__(self, device: str, settings: Settings) -> None:
        self.device, self.settings = device, settings
        self._process: ForkedProgram | None = None

    def ask(self, job: tuple) -> Reward | str | None:
        """The answer; None where the process ended over it."""
        if self._process is None:
            self._start()
        try:
            send(self._process.stdin, job)
            return receive(self._process.stdout)
        except (EOFError, OSError):
            self.close()
            return None

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.close()  # at the end of its input it ends its workers, and itself

    def _start(self) -> None:
        self._process = ForkedProgram("agent.learning.reward_worker")
        server, _ = shared_server().lend()
        try:
            send(self._process.stdin, (dict(os.environ), server, self.device, self.settings))
            refused = receive(self._process.stdout)
        except (EOFError, OSError):
            refused = "its process ended at once; its messages are above"
        if refused:
            self.close()
            raise PassNetError(f"no rewards on {self.device}: {refused}")


def _all_devices() -> list[str]:
    return [f"cuda:{n}" for n in range(torch.cuda.device_count())] or ["cpu"]


def _given(files: Files | str) -> Files:
    """A pass as it was given. Raises PassNetError for a directory that is not there."""
    if isinstance(files, Mapping):
        return files
    if not Path(files).is_dir():
        raise PassNetError(f"{files} is no pass directory")
    return Path(files)


def _key(sample: Sample, files: Files) -> str:
    variants = [variant.variant_hash or variant.to_row() for variant in sample.variants]
    text = str(files) if isinstance(files, Path) else sorted(files.items())
    return hashlib.sha256(json.dumps([sample.sample, variants, text]).encode()).hexdigest()
