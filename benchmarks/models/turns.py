"""Processes that get ready side by side and are timed one after another on each device.

A process says on its standard output that it is ready, waits for a line, and says its row (`say_ready`, `say_row`).
While some are timed, those that still get ready are stopped, so that nothing else runs on the host.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

READY, ROW = "@@ready", "@@row "
"""What a process says: that it waits for its turn, and its row."""
LONGEST = 420.0
"""Seconds after which a process that is not ready is killed."""
TIMING = 60.0
"""Seconds that the timing of a process may take."""
LAST = 20.0
"""Seconds before the end from which whoever is ready is timed at once."""


@dataclass(frozen=True)
class Task:
    """A process to start, and the file that its standard error goes to."""

    command: Sequence[str]
    log: Path


@dataclass
class Running:
    """A process that was started."""

    task: Task
    device: str
    process: subprocess.Popen
    begun: float = field(default_factory=time.monotonic)
    ready: bool = False
    row: dict[str, Any] | None = None
    heard: bytes = b""

    @property
    def gone(self) -> bool:
        return self.process.poll() is not None

    def signal(self, number: int) -> None:
        """To it and the compilers that it started."""
        if not self.gone:
            os.killpg(self.process.pid, number)

    def end(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()


@dataclass(frozen=True)
class Ended:
    """What became of a task: its row, or None with why it has none. `seconds` it took."""

    task: Task
    row: dict[str, Any] | None
    why: str
    seconds: float


@dataclass(frozen=True)
class Limits:
    """`compiling`: processes that get ready at a time. `waiting`: so many wait for their turn before they are timed.
    `deadline`: when all ends, by `time.monotonic`."""

    compiling: int
    waiting: int
    deadline: float


def say_ready() -> None:
    """In a process: say that everything is compiled, and wait for the turn."""
    print(READY, flush=True)
    sys.stdin.readline()


def say_row(row: dict[str, Any]) -> None:
    """In a process: say the result."""
    print(ROW + json.dumps(row), flush=True)


def in_turns(
    tasks: Sequence[Task], devices: Sequence[str], environment: Mapping[str, str], limits: Limits
) -> Iterator[Ended]:
    """Run tasks, dealt out to devices ("cuda:1", "cpu"); yields each that has ended. Those that are left at the
    deadline are killed and not yielded."""
    ahead, running = list(tasks), []
    try:
        while (ahead or running) and time.monotonic() < limits.deadline:
            while ahead and _open(running) < limits.compiling and len(running) < limits.compiling + limits.waiting:
                used = Counter(each.device for each in running)
                device = min(devices, key=lambda name: used[name])
                running.append(_start(ahead.pop(0), device, environment))
            _listen(running, 0.2)
            for each in running:
                if not each.ready and time.monotonic() - each.begun > LONGEST:
                    each.end()
            ended = [each for each in running if each.gone]
            for each in ended:
                running.remove(each)
                yield _ended(each)
            ready = sum(each.ready for each in running)
            late = time.monotonic() > limits.deadline - LAST
            if ready and (ready >= limits.waiting or late or not (ahead or _open(running))):
                yield from _timed(running, limits.deadline)
    finally:
        for each in running:
            each.end()


def _open(running: Sequence[Running]) -> int:
    return sum(not each.ready for each in running)


def _start(task: Task, device: str, environment: Mapping[str, str]) -> Running:
    number = device.partition(":")[2]
    with task.log.open("w") as log:
        process = subprocess.Popen(
            task.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**environment, **({"CUDA_VISIBLE_DEVICES": number} if number else {})},
            start_new_session=True,
        )
    os.set_blocking(process.stdout.fileno(), False)
    return Running(task, device, process)


def _ended(each: Running) -> Ended:
    _hear(each)
    seconds = time.monotonic() - each.begun
    code = each.process.returncode
    why = f"its process was killed after {seconds:.0f} s" if code == -signal.SIGKILL else f"exit {code}"
    return Ended(each.task, each.row, "" if each.row else why, seconds)


def _listen(running: Sequence[Running], seconds: float) -> None:
    with selectors.DefaultSelector() as selector:
        for each in running:
            if not each.gone:
                selector.register(each.process.stdout, selectors.EVENT_READ, each)
        if selector.get_map():
            for key, _ in selector.select(seconds):
                _hear(key.data)


def _hear(each: Running) -> None:
    *lines, each.heard = (each.heard + (each.process.stdout.read() or b"")).split(b"\n")
    for line in (one.decode(errors="replace") for one in lines):
        if line == READY:
            each.ready = True
        elif line.startswith(ROW):
            each.row = json.loads(line[len(ROW) :])


def _timed(running: list[Running], deadline: float) -> Iterator[Ended]:
    """Let each process that is ready time its calls, alone on its device; yields those that are through."""
    begin, others = time.monotonic(), [each for each in running if not each.ready]
    for each in others:
        each.signal(signal.SIGSTOP)
    queues: dict[str, list[Running]] = defaultdict(list)
    for each in running:
        if each.ready:
            queues[each.device].append(each)
    timing: dict[str, tuple[Running, float]] = {}
    while timing or (any(queues.values()) and time.monotonic() < deadline):
        for device, queue in queues.items():
            if queue and device not in timing and time.monotonic() < deadline:
                timing[device] = (queue.pop(0), time.monotonic())
                timing[device][0].process.stdin.write(b"go\n")
                timing[device][0].process.stdin.flush()
        _listen([each for each, _ in timing.values()], 0.1)
        for device, (each, begun) in list(timing.items()):
            if each.gone or each.row is not None or time.monotonic() - begun > TIMING:
                each.end()
                del timing[device]
                running.remove(each)
                yield _ended(each)
    for each in others:
        each.begun += time.monotonic() - begin
        each.signal(signal.SIGCONT)
