"""The process of `OwnPasses`, a fork of the one that PassBench's workers are forks of.

Triton is imported in `main`, when the environment says whether it is interpreted.
"""

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import torch

if TYPE_CHECKING:
    from benchmarks.learning.checking.verdicts import Checked
    from storage.records import Sample

READY = b"ready\n"


def write(stream: BinaryIO, message: Mapping[str, Any]) -> None:
    """Write a message as a line."""
    stream.write(json.dumps(message).encode() + b"\n")
    stream.flush()


def main(control: int) -> None:
    """Answer requests until standard input ends, each a line; the first line says how, and in which environment. What a
    pass prints goes to standard error. The server's socket, `control`, is not needed."""
    os.close(control)
    answers, requests = os.fdopen(os.dup(1), "wb"), os.fdopen(0, "rb")
    os.dup2(2, 1)
    about = json.loads(requests.readline())
    os.environ.clear()
    os.environ.update(about["environment"])  # Triton reads it while it is imported
    tempfile.tempdir = None  # chosen anew from the environment
    from agent.ahead.gpu_turns import GpuTurns
    from agent.ahead.quick_measure import QuickMeasure
    from benchmarks.learning.graph_sources import kept_sample
    from passbench.inputs.distribution import CORRECTNESS

    device = torch.device(about["device"])
    torch.set_num_threads(1)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        turns = GpuTurns(Path(about["turns"])) if about["turns"] else None
        turn, untimed = (turns.author, turns.untimed) if turns else (nullcontext, None)
        measure = QuickMeasure(device, turn, further=about["further"], untimed=untimed)
    else:
        _interpret()
        measure = QuickMeasure(device, timed=False, draws=len(CORRECTNESS))  # kernels are interpreted, slowly
    answers.write(READY)
    answers.flush()
    for line in requests:
        request = json.loads(line)
        write(answers, asdict(_checked(measure, kept_sample(request["line"]), request["files"])))


def _interpret() -> None:
    """Have kernels behave on the CPU as they do in PassBench's workers."""
    import numpy as np

    from passbench.child.interpreter import triton_interpreter

    np.seterr(all="ignore")  # kernels overflow to infinity as a GPU's do, without a word
    triton_interpreter.compute_as_a_gpu()
    triton_interpreter.confine_kernels()


def _checked(measure, sample: "Sample", files: Mapping[str, str]) -> "Checked":
    """What QuickMeasure says of a pass that the policy allows. Raises where the device works no more."""
    from agent.llm.task import describe_graphs
    from benchmarks.learning.checking.doubt import doubt
    from benchmarks.learning.checking.verdicts import BY_INTERPRETER, BY_OWN_PROCESS, Checked, checked
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
