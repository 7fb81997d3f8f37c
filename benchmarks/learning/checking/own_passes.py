"""Whether passes of our own authors are right, about one a second: many in one process, one after another.

`OwnPasses` is a process that stays warm: on a CPU it holds Triton's interpreter, on a GPU a CUDA context. In it eager
and the pass run beside each other, on draws of all of PassBench's distributions. `agent.ahead.quick_measure` compares
them with PassBench's functions, at its levels, and on a GPU times both. PassBench gives each a process, and believes
nothing that it says; here a pass could read the reference, the clock and the next pass. So this is for text that one of
our authors wrote and the policy allows, never for a model's answer. It does not find out whether timed calls are right
too, nor which kernels ran.
"""

import json
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from benchmarks.learning.checking import own_process
from benchmarks.learning.checking.verdicts import Checked
from benchmarks.learning.graph_sources import line_of
from passbench.workers.forked_program import ForkedProgram
from storage.records import Sample

PATIENCE = {"cpu": 12.0, "cuda": 40.0}
"""Seconds for a variant, compiling included."""
FURTHER_DRAWS = 512
"""On a GPU, beside the eight that QuickMeasure makes for a search: about as many as PassBench compares in all. With
eight alone, two of 14 passes were called right that PassBench found wrong, with 64 one more of about 80."""


class OwnPasses:
    """A process that checks passes on a device, and starts with the first one; a context manager. Where it dies the
    next check has another one.

    On a GPU processes that are given the same directory `turns`, which must exist, compare side by side and time in
    turns; a pass that rounds otherwise than eager, or of which `doubt` says why it may, has so many `further` draws.
    """

    def __init__(self, device: str = "cpu", turns: Path | None = None, further: int = FURTHER_DRAWS) -> None:
        cpu = {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}
        about = {"device": device, "turns": str(turns) if turns else "", "further": further}
        self._about = about | {"environment": {**os.environ, **cpu}}
        self.patience = PATIENCE[device.partition(":")[0]]
        """Seconds for a variant."""
        self._process: ForkedProgram | None = None

    def _started(self) -> ForkedProgram:
        process = ForkedProgram(own_process.__name__)
        with suppress(BrokenPipeError):  # it has ended, and is not ready
            own_process.write(process.stdin, self._about)
        if process.stdout.readline() != own_process.READY:
            process.close()
            raise RuntimeError("the process that checks passes does not start; it says why on standard error")
        return process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.close()

    def check(self, sample: Sample, files: Mapping[str, str]) -> Checked:
        """What is wrong with a pass at t = -5 in a variant of the sample, or its level and times in all."""
        process = self._process = self._process or self._started()
        seconds = self.patience * len(sample.variants)
        late = threading.Event()
        ringing = threading.Timer(seconds, lambda: (late.set(), process.kill()))
        ringing.start()
        with suppress(BrokenPipeError):  # it has ended, and answers nothing
            own_process.write(process.stdin, {"files": dict(files), "line": line_of(sample)})
        answer = process.stdout.readline()
        ringing.cancel()
        ringing.join()  # it may have fired beside the answer: the process is gone then, and the next pass has another
        whole = answer.endswith(b"\n")
        if late.is_set() or not whole:
            self._end()
        if not whole:
            cause = f"no check in {seconds:.0f} s"
            return Checked(cause=cause) if late.is_set() else Checked("the process that checks ended")
        return Checked(**json.loads(answer))
