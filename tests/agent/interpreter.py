"""Runs passes under the Triton interpreter in a process of its own: a request a line in, an answer a line out.

It is a fork of the process that PassBench's workers are forks of.

A request is JSON: the pass directory, a variant's row, and how many draws. The answer lists what is wrong, or nothing.
"""

import json
import os
import traceback
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"

import torch

from passbench.child.interpreter.triton_interpreter import compute_as_a_gpu
from storage.records import Variant
from tests.agent.compared import as_tuple, problems, rewritten
from tests.agent.made_calls import other_calls


def keep_results(directory: Path, variant: Variant, place: Path) -> None:
    """Puts in the place of the inputs that are kept there what the variant returns for them under the pass."""
    with torch.no_grad():
        torch.save(list(as_tuple(rewritten(directory, variant)(*torch.load(place)))), place)


def main(control: int) -> None:
    """Answers requests until standard input ends. The server's socket, `control`, is not needed."""
    os.close(control)
    torch.set_num_threads(1)
    compute_as_a_gpu()
    answers, requests = os.fdopen(os.dup(1), "w"), os.fdopen(0)
    os.dup2(2, 1)
    for line in requests:
        request = json.loads(line)
        try:
            directory, variant = Path(request["directory"]), Variant.from_row(request["variant"])
            found = []
            if "results" in request:
                keep_results(directory, variant, Path(request["results"]))
            elif "calls" in request:
                found = other_calls(rewritten(directory, variant), variant)
            else:
                found = problems(directory, variant, request["draws"])
        except Exception:
            found = [traceback.format_exc()]
        answers.write(json.dumps(found) + "\n")
        answers.flush()
