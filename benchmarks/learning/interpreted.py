"""Whether a pass of our own is right, in a fraction of a second: eager against the pass under Triton's interpreter.

`Interpreter` is a process that holds the interpreter. It draws inputs, compares and confines kernels as PassBench does,
with PassBench's functions; it does not isolate the pass, and times nothing. So it is for passes that our authors wrote,
never for a model's answers.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from storage.records import Sample

DRAWS = 5
"""One of each distribution of PassBench."""
_PATIENCE = 30.0  # seconds for a variant


class Interpreter:
    """A process that checks passes; a context manager."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, "-m", __name__]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def fault(self, sample: Sample, files: Mapping[str, str]) -> str:
        """What is wrong with a pass at t = -5 in a variant of the sample; empty if it is right in all."""
        for variant in sample.variants:
            ringing = threading.Timer(_PATIENCE, self._process.kill)
            ringing.start()
            self._process.stdin.write(json.dumps({"files": dict(files), "variant": variant.to_row()}) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
            ringing.cancel()
            if not answer:
                self._end()
                self._start()
                return "the interpreter took too long or ended"
            if fault := json.loads(answer):
                return fault
        return ""


def main() -> None:
    """Answer requests until standard input ends; what a pass prints goes to standard error."""
    import numpy as np
    import torch

    from passbench.child.triton_interpreter import confine_kernels, round_bfloat16_to_nearest, spare_idle_work
    from storage.records import Variant

    torch.set_num_threads(1)
    np.seterr(all="ignore")  # kernels overflow to infinity as a GPU's do, without a word
    spare_idle_work()
    round_bfloat16_to_nearest()
    confine_kernels()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        with tempfile.TemporaryDirectory() as place, torch.no_grad():
            try:
                fault = _fault(Variant.from_row(request["variant"]), request["files"], Path(place) / "checked")
            except Exception as error:  # whatever a wrong pass or a failing eager raises is the answer
                fault = f"{type(error).__name__}: {error}"[:300]
        answers.write(json.dumps(fault) + "\n")
        answers.flush()


def _fault(variant, files: Mapping[str, str], directory: Path) -> str:
    import torch

    from passbench.checking.tolerance import Comparison
    from passbench.contract import NAMES_FILE, load_rules, write_pass_dir
    from passbench.inputs.draw import CORRECTNESS, make_inputs
    from passbench.matching.rewrite import apply_pass
    from storage.graph.as_fx import to_fx

    write_pass_dir(dict(files), directory)
    graph = to_fx(variant.graph, "cpu")
    applied = apply_pass(graph, load_rules(directory, tuple(json.loads(files[NAMES_FILE]))))
    if not applied.total:
        return "no match"
    candidate = torch.fx.GraphModule(torch.nn.Module(), graph)
    eager = torch.fx.GraphModule(torch.nn.Module(), to_fx(variant.graph, "cpu"))
    comparison = Comparison()
    for draw in range(DRAWS):
        given = [make_inputs(variant.inputs, 7, draw, "cpu", CORRECTNESS[draw % len(CORRECTNESS)]) for _ in range(2)]
        for number, (want, have) in enumerate(zip(eager(*given[0]), candidate(*given[1]), strict=True)):
            layouts = [(t.dtype, t.shape, t.stride()) for t in (want, have)]
            if layouts[0] != layouts[1]:
                return f"output {number} is {layouts[1]}, where eager has {layouts[0]}"
            comparison.add(have, want, draw, number)
        for number, (want, have) in enumerate(zip(*given, strict=True)):
            if not torch.equal(want.nan_to_num(), have.nan_to_num()):
                return f"input {number} is written over"
    if comparison.t_min is None or comparison.t_min > -5:
        return f"correct at t = {comparison.t_min} only: {comparison.worst}"
    return ""


if __name__ == "__main__":
    main()
