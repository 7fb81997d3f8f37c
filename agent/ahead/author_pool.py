"""Processes of one author, each at work on a sample of its own, and what they have answered.

    DIRECTORY/SAMPLE/answer.json    what the author hands in; there when the sample is done
    DIRECTORY/SAMPLE/pass           its pass, if it wrote one
    DIRECTORY/SAMPLE/claimed        the process at work on it, or that was
    DIRECTORY/SAMPLE/ended          why that process ended before it had an answer
    DIRECTORY/NUMBER.log            what the processes of this number said

Another process takes the place of one that dies, such as by a kernel that breaks the GPU's context, or that is ended
for its time. It hands in what the author has for such a sample (`Author.fallback`). The sample is left to eager where
that is nothing, or its process ends as well. A killed run goes on: what has an answer is not worked on again. The
processes are forks of one that has imported torch and triton, and touches no GPU, since CUDA does not survive a fork.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from agent.ahead.gpu_memory import free_bytes, wait_for_room
from agent.ahead.gpu_turns import GpuTurns
from agent.ahead.quick_measure import QuickMeasure
from agent.author import Attempt, Author, Submission
from passbench.workers.preloaded_forks import forks_with
from storage.disk import write_json
from storage.records import Sample

_NICE = 10
"""Authors leave the processor to the benchmark."""

_FORKS = forks_with("agent.ahead.author_pool", "torch._dynamo", "triton")

_DUE = 0.6
"""An answer is due after this share of what a sample may take. What an author still does then takes some seconds, and
an attempt that is ended hands in less."""

_POLL = 0.05
"""Seconds between looks at processes that are to end by themselves."""


@dataclass(frozen=True)
class Answers:
    """What authors have answered, below `directory`."""

    directory: Path

    def of(self, sample: Sample) -> Submission | None:
        """What the author hands in for a sample; None as long as there is no answer."""
        path = self._answer(sample)
        if not path.exists():
            return None
        kept = json.loads(path.read_text("utf-8"))
        if kept["compiler"] == "pass":
            return Submission("pass", self.place(sample))
        return Submission(kept["compiler"], reason=kept["reason"])

    def keep(self, sample: Sample, submission: Submission, seconds: float = 0.0) -> None:
        """Keep an answer. A pass is in `place(sample)` by then."""
        kept = {"compiler": submission.compiler, "reason": submission.reason, "seconds": round(seconds, 2)}
        write_json(self._answer(sample), kept)

    def place(self, sample: Sample) -> Path:
        """Where the sample's pass is to be."""
        return self.directory / sample.sample / "pass"

    def claim(self, sample: Sample) -> bool:
        """Whether the sample is this process's to work on: it has no answer, and no other process has claimed it."""
        path = self._claimed(sample)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return False
        os.write(file, str(os.getpid()).encode())
        os.close(file)
        return True

    def claimed_by(self, sample: Sample) -> int | None:
        """The process that is at work on the sample, or was."""
        path = self._claimed(sample)
        text = path.read_text() if path.exists() else ""
        return int(text) if text else None

    def release(self, sample: Sample) -> None:
        """Let another process work on the sample."""
        self._claimed(sample).unlink(missing_ok=True)

    def ended(self, sample: Sample) -> str:
        """Why a process that was at work on the sample ended before it had an answer; empty if none did."""
        path = self._ended(sample)
        return path.read_text("utf-8") if path.exists() else ""

    def end(self, sample: Sample, reason: str) -> None:
        """The sample's process has ended without an answer: another is to hand in what there is, or the sample is left
        to eager if that was tried."""
        if self.ended(sample):
            self.keep(sample, Submission("eager", reason=reason))
        else:
            self._ended(sample).write_text(reason, "utf-8")
            self.release(sample)

    def _answer(self, sample: Sample) -> Path:
        return self.directory / sample.sample / "answer.json"

    def _claimed(self, sample: Sample) -> Path:
        return self.directory / sample.sample / "claimed"

    def _ended(self, sample: Sample) -> Path:
        return self.directory / sample.sample / "ended"


@dataclass
class AuthorPool:
    """`processes` of `author` that write passes for `samples`, in order, on `device` and these processor `cores`.

    Start it with `start`; `tend` it now and then, or wait in `finish`; `close` ends all. A sample may take `seconds`.
    `state` is where the author keeps what is of use to later runs.
    """

    author: Author
    samples: Sequence[Sample]
    answers: Answers
    device: torch.device
    processes: int
    cores: Set[int]
    state: Path | None = None
    seconds: float = 150.0
    _running: dict[int, BaseProcess] = field(default_factory=dict)
    _begun: dict[str, float] = field(default_factory=dict)

    def start(self) -> None:
        """Start all processes. What an earlier, killed pool has claimed and not answered is free again."""
        self.answers.directory.mkdir(parents=True, exist_ok=True)
        for sample in self._unanswered():
            self.answers.release(sample)
        for number in range(min(self.processes, len(self._unanswered()))):
            self._start(number)

    def tend(self) -> None:
        """End processes that are at work on a sample for too long, and replace those that died."""
        working = self._working()
        for number, process in list(self._running.items()):
            sample = working.get(process.pid)
            if sample is not None and self._took(sample) > self.seconds:
                process.kill()
                process.join()
            if process.is_alive():
                continue
            del self._running[number]
            sample = self._working().get(process.pid)  # it may have claimed one since the look above
            if process.exitcode and sample is not None:
                self.answers.end(sample, f"the author's process ended with status {process.exitcode}")
                self._begun.pop(sample.sample, None)
            if process.exitcode:
                self._start(number)

    def finish(self, end: float) -> None:
        """Return when all samples are answered, or at `end` (`time.monotonic`), with no process at work."""
        while self.at_work and time.monotonic() < end:
            self.tend()
            time.sleep(_POLL)
        self.close()

    @property
    def at_work(self) -> bool:
        """Whether answers are still to come; `tend` sees to processes that have ended."""
        return bool(self._running)

    def close(self) -> None:
        """End all processes."""
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.join()
        self._running.clear()

    def _start(self, number: int) -> None:
        log = self.answers.directory / f"{number}.log"
        whole = self.author, self.samples, self.answers, self.device, self.cores, self.state, self.seconds
        process = _FORKS.Process(target=_work, args=(number, *whole, log), daemon=True)
        process.start()
        self._running[number] = process

    def _unanswered(self) -> list[Sample]:
        return [sample for sample in self.samples if self.answers.of(sample) is None]

    def _working(self) -> dict[int, Sample]:
        """Process → the sample that it has claimed and not answered."""
        return {pid: s for s in self._unanswered() if (pid := self.answers.claimed_by(s)) is not None}

    def _took(self, sample: Sample) -> float:
        """Seconds since `tend` saw that the sample is worked on."""
        return time.monotonic() - self._begun.setdefault(sample.sample, time.monotonic())


def _work(
    number: int,
    author: Author,
    samples: Sequence[Sample],
    answers: Answers,
    device: torch.device,
    cores: Set[int],
    state: Path | None,
    seconds: float,
    log: Path,
) -> None:
    """What the process of this number does: answer samples until none is left. All but the first begin none as long as
    the GPU has little memory left, for some seconds."""
    out = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.sched_setaffinity(0, cores)
    os.nice(_NICE)
    torch.set_num_threads(1)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    turns = GpuTurns(answers.directory)
    measure = QuickMeasure(device, turns.author, untimed=turns.untimed)
    author.begin(())
    for sample in samples:
        if number and answers.claimed_by(sample) is None:  # the first process works in any case
            wait_for_room(partial(free_bytes, device), lambda: answers.claimed_by(sample) is not None)  # noqa: B023
        if answers.of(sample) is None and answers.claim(sample):
            begin = time.monotonic()
            shutil.rmtree(answers.place(sample), ignore_errors=True)  # of a process that was killed
            given = str(device), measure, _drop, None, _say(sample), state, measure.check, lambda: measure.waited
            attempt = Attempt(1, *given, due=begin + _DUE * seconds)
            if reason := answers.ended(sample):
                submission = author.fallback(sample, answers.place(sample), attempt)
                submission = submission or Submission("eager", reason=reason)
            else:
                submission = author.attempt(sample, answers.place(sample), attempt)
            answers.keep(sample, submission, time.monotonic() - begin)
            measure.rest()


def _drop(row: Mapping[str, Any]) -> None:
    """Authors of passes written ahead keep no trajectory."""


def _say(sample: Sample) -> Callable[[str], None]:
    return lambda text: print(f"{sample.sample}: {text}", flush=True)
