"""Whether passes of our own authors are right, about one a second: many in one process, one after another.

`OwnPasses` is a process that stays warm: on a CPU it holds Triton's interpreter, on a GPU a CUDA context. In it eager
and the pass run beside each other, on draws of all of PassBench's distributions. `agent.ahead.quick_measure` compares
them with PassBench's functions, at its levels, and on a GPU times both. PassBench gives each a process, and believes
nothing that it says; here a pass could read the reference, the clock and the next pass. So this is for text that one of
our authors wrote and the policy allows, never for a model's answer. It does not find out whether timed calls are right
too, nor which kernels ran.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Self

from agent.llm.task import describe_graphs
from benchmarks.learning.checking.doubt import doubt
from benchmarks.learning.checking.verdicts import BY_INTERPRETER, BY_OWN_PROCESS, Checked, checked
from benchmarks.learning.graph_sources import kept_sample, line_of
from storage.records import Sample

PATIENCE = {"cpu": 12.0, "cuda": 40.0}
"""Seconds for a variant, compiling included."""
FURTHER_DRAWS = 512
"""On a GPU, beside the eight that QuickMeasure makes for a search: about as many as PassBench compares in all. With
eight alone, two of 14 passes were called right that PassBench found wrong, with 64 one more of about 80."""
_READY = "ready\n"


class OwnPasses:
    """A process that checks passes on a device; a context manager. Where it dies the next check has another one.

    On a GPU processes that are given the same directory `turns`, which must exist, compare side by side and time in
    turns; a pass that rounds otherwise than eager, or of which `doubt` says why it may, has so many `further` draws.
    """

    def __init__(self, device: str = "cpu", turns: Path | None = None, further: int = FURTHER_DRAWS) -> None:
        self._command = [sys.executable, "-m", __name__, "--device", device, "--further", str(further)]
        self._command += ["--turns", str(turns)] if turns else []
        cpu = {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}
        self._environment = {**os.environ, **cpu}
        self.patience = PATIENCE[device.partition(":")[0]]
        """Seconds for a variant."""
        self._process, self._ready = self._started(), False

    def _started(self) -> subprocess.Popen:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        return subprocess.Popen(self._command, env=self._environment, text=True, **pipes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def check(self, sample: Sample, files: Mapping[str, str]) -> Checked:
        """What is wrong with a pass at t = -5 in a variant of the sample, or its level and times in all."""
        if self._process.returncode is not None:
            self._process, self._ready = self._started(), False
        seconds, process = self.patience * len(sample.variants), self._process
        if not self._ready and process.stdout.readline() != _READY:
            raise RuntimeError("the process that checks passes does not start; it says why on standard error")
        self._ready = True
        ringing = threading.Timer(seconds, process.kill)
        ringing.start()
        began = time.monotonic()
        process.stdin.write(json.dumps({"files": dict(files), "line": line_of(sample)}) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        ringing.cancel()
        if not answer:
            self._end()
            late = time.monotonic() - began > seconds
            return Checked(cause=f"no check in {seconds:.0f} s") if late else Checked("the process that checks ended")
        return Checked(**json.loads(answer))


def main() -> None:
    """Answer requests until standard input ends; what a pass prints goes to standard error."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", required=True)
    parser.add_argument("--turns", type=Path)
    parser.add_argument("--further", type=int, required=True)
    arguments = parser.parse_args()
    import torch

    from agent.ahead.gpu_turns import GpuTurns
    from agent.ahead.quick_measure import QuickMeasure
    from passbench.inputs.distribution import CORRECTNESS

    device = torch.device(arguments.device)
    torch.set_num_threads(1)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        turns = GpuTurns(arguments.turns) if arguments.turns else None
        turn, untimed = (turns.author, turns.untimed) if turns else (nullcontext, None)
        measure = QuickMeasure(device, turn, further=arguments.further, untimed=untimed)
    else:
        _interpret()
        measure = QuickMeasure(device, timed=False, draws=len(CORRECTNESS))  # kernels are interpreted, slowly
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    answers.write(_READY)
    answers.flush()
    for line in sys.stdin:
        request = json.loads(line)
        answers.write(json.dumps(asdict(_checked(measure, kept_sample(request["line"]), request["files"]))) + "\n")
        answers.flush()


def _interpret() -> None:
    """Have kernels behave on the CPU as they do in PassBench's workers."""
    import numpy as np

    from passbench.child.triton_interpreter import confine_kernels, round_bfloat16_to_nearest, spare_idle_work

    np.seterr(all="ignore")  # kernels overflow to infinity as a GPU's do, without a word
    spare_idle_work()
    round_bfloat16_to_nearest()
    confine_kernels()


def _checked(measure, sample: Sample, files: Mapping[str, str]) -> Checked:
    """What QuickMeasure says of a pass that the policy allows. Raises where the device works no more."""
    from passbench.contract import NAMES_FILE, ContractError, PassFiles, write_pass_dir
    from passbench.policy.check import check_files

    if findings := check_files(PassFiles(tuple(json.loads(files[NAMES_FILE])), files, ())):
        return Checked(f"rejected: {findings[0].rule}: {findings[0].message}")
    on_gpu = measure.device.type == "cuda"
    with tempfile.TemporaryDirectory(prefix="passnet-own-") as place:
        directory = Path(place) / "pass"
        write_pass_dir(dict(files), directory)
        dtypes = {i.dtype for variant in sample.variants for i in variant.inputs}
        doubtful = bool(doubt(describe_graphs(sample), files, dtypes))
        try:
            found = measure(sample, directory, doubtful)
        except ContractError as error:
            return Checked(str(error))
    return checked(found, BY_OWN_PROCESS if on_gpu else BY_INTERPRETER, timed=on_gpu)


if __name__ == "__main__":
    main()
