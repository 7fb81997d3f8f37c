"""Processes of one author, each at work on a sample of its own, and what they have answered.

    DIRECTORY/SAMPLE/answer.json    what the author hands in; there when the sample is done
    DIRECTORY/SAMPLE/pass           its pass, if it wrote one
    DIRECTORY/SAMPLE/claimed        the process at work on it, or that was
    DIRECTORY/SAMPLE/ended          why that process ended before it had an answer
    DIRECTORY/NUMBER.log            what the processes of this number said
    DIRECTORY/NUMBER.raised         what one of them raised before it began with a sample
    DIRECTORY/NUMBER.stopped        why there is none of this number any more

Another process takes the place of one that dies, such as by a kernel that breaks the GPU's context, or that is ended
for its time. It hands in what the author has for such a sample (`Author.fallback`). The sample is left to eager where
that is nothing, or its process ends as well. A process that ends before it has begun with a sample, such as for lack of
memory for CUDA's context, is started again a little later, a few times in a row. A killed run goes on: what has an
answer is not worked on again. The processes are forks of one that has imported torch and triton, and touches no GPU,
since CUDA does not survive a fork.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from agent.ahead.gpu_memory import free_bytes, lacks_memory, wait_for_room
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

_LATER = (0.0, 1.0, 4.0, 16.0, 40.0)
"""Seconds until the next start of a process, one after another of those that ended before they had a sample. By then
others may have given back the memory that they lacked."""

_POLL = 0.05
"""Seconds between looks at processes that are to end by themselves."""


@dataclass(frozen=True)
class Stopped:
    """Why no process of this `number` works any more: so many `starts` in a row ended before they had begun with a
    sample, the last one with this `status`. `reason` is what it raised; empty if nothing is known of that."""

    number: int
    starts: int
    status: int
    reason: str

    @property
    def lacked_memory(self) -> bool:
        """Whether the GPU had no memory left for another process."""
        return lacks_memory(self.reason)


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

    def raised(self, number: int, error: Exception) -> None:
        """Note what a process of this number has raised before it began with a sample."""
        self._of_number(number, "raised").write_text(f"{type(error).__name__}: {error}", "utf-8")

    def stop(self, number: int, starts: int, status: int) -> None:
        """Note that no process of this number is started any more."""
        path = self._of_number(number, "raised")
        reason = path.read_text("utf-8") if path.exists() else ""
        write_json(self._of_number(number, "stopped"), asdict(Stopped(number, starts, status, reason)))

    def stopped(self) -> list[Stopped]:
        """The numbers of which no process works any more, though there was work to do."""
        kept = (json.loads(path.read_text("utf-8")) for path in self.directory.glob("*.stopped"))
        return sorted((Stopped(**each) for each in kept), key=lambda each: each.number)

    def begin(self, number: int) -> None:
        """A process of this number is to start: what was noted of earlier ones holds no more."""
        for kind in ("raised", "stopped"):
            self._of_number(number, kind).unlink(missing_ok=True)

    def _of_number(self, number: int, kind: str) -> Path:
        return self.directory / f"{number}.{kind}"

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
    _unused: dict[int, int] = field(default_factory=dict)  # starts in a row that ended before they had a sample
    _next: dict[int, float] = field(default_factory=dict)  # when the next process of a number is to start

    def start(self) -> None:
        """Start all processes. What an earlier, killed pool has claimed and not answered is free again. A pool that was
        closed may be started again: its processes have as many starts and as much time as those of a new one."""
        self._unused.clear()
        self._begun.clear()
        self.answers.directory.mkdir(parents=True, exist_ok=True)
        for sample in self._unanswered():
            self.answers.release(sample)
        for earlier in self.answers.stopped():
            self.answers.begin(earlier.number)
        for number in range(min(self.processes, len(self._unanswered()))):
            self._start(number)

    def tend(self) -> None:
        """End processes that are at work on a sample for too long, and replace those that died. A number whose
        processes have ended again and again without a sample gets none any more (`Answers.stopped`)."""
        if self._next and not self._unanswered():
            self._next.clear()
        for number in [number for number, begin in self._next.items() if time.monotonic() >= begin]:
            del self._next[number]
            self._start(number)
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
            if process.exitcode and (sample is not None or self._has_answered(process)):
                self._unused[number] = 0
                self._start(number)
            elif process.exitcode:
                self._start_later(number, process.exitcode)

    def finish(self, end: float) -> None:
        """Return when all samples are answered, or at `end` (`time.monotonic`), with no process at work."""
        while self.at_work and time.monotonic() < end:
            self.tend()
            time.sleep(_POLL)
        self.close()

    @property
    def at_work(self) -> bool:
        """Whether answers are still to come; `tend` sees to processes that have ended."""
        return bool(self._running or self._next)

    def close(self) -> None:
        """End all processes."""
        self._next.clear()
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.join()
        self._running.clear()

    def _start(self, number: int) -> None:
        self.answers.begin(number)
        log = self.answers.directory / f"{number}.log"
        whole = self.author, self.samples, self.answers, self.device, self.cores, self.state, self.seconds
        process = _FORKS.Process(target=_work, args=(number, *whole, log), daemon=True)
        process.start()
        self._running[number] = process

    def _start_later(self, number: int, status: int) -> None:
        """Have a process take the place of one that has ended without a sample, some time later; none if that was the
        last time."""
        unused = self._unused[number] = self._unused.get(number, 0) + 1
        if unused > len(_LATER):
            self.answers.stop(number, unused, status)
        else:
            self._next[number] = time.monotonic() + _LATER[unused - 1]

    def _has_answered(self, process: BaseProcess) -> bool:
        return any(self.answers.claimed_by(sample) == process.pid for sample in self.samples)

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
    try:
        if device.type == "cuda":
            torch.cuda.set_device(device)
        free_bytes(device)  # makes CUDA's context, which takes memory
    except Exception as error:  # of torch and of CUDA
        answers.raised(number, error)
        raise
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
