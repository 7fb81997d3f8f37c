"""Forks of a process that has imported what they need."""

import importlib
import subprocess
import sys

import pytest
import torch

from passbench.workers.preloaded_forks import forks_with

USERS = ("agent.ahead.author_pool", "flows.evaluate.bench_process", "benchmarks.learning.decoder.sequences")


def forks_may_use_cuda(*modules: str) -> bool:
    """Whether torch lets a fork of the process that all share have CUDA where it has also imported these modules."""
    for module in modules:
        importlib.import_module(module)
    with forks_with(*modules).Pool(1) as pool:
        return not pool.apply(torch.cuda._is_in_bad_fork)


@pytest.mark.parametrize(("modules", "expected"), [(USERS, True), (("torch._inductor.ir",), False)])
def test_forks_may_use_cuda(modules, expected):
    """The users' at once: a process may import them all, and its forks have what each has asked for."""
    asked = [sys.executable, "-m", __name__, *modules]
    found = subprocess.run(asked, capture_output=True, text=True, timeout=120)
    assert found.stdout.split() == [str(expected)]


if __name__ == "__main__":
    print(forks_may_use_cuda(*sys.argv[1:]))
