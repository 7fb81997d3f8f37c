"""Forks of a process that has imported what they need."""

from pathlib import Path

import pytest

USERS = (
    "agent.ahead.author_pool",
    "flows.evaluate.bench_process",
    "benchmarks.learning.decoder.sequences",
    "benchmarks.learning.parts",
)
PROGRAM = """
import importlib, sys, torch
from passbench.workers.preloaded_forks import forks_with
for module in sys.argv[1:]:
    importlib.import_module(module)
with forks_with(*sys.argv[1:]).Pool(1) as pool:
    print(not pool.apply(torch.cuda._is_in_bad_fork))
"""


@pytest.mark.parametrize(("modules", "expected"), [(USERS, True), (("torch._inductor.ir",), False)])
def test_forks_may_use_cuda(modules, expected, warm_forks):
    """Whether torch lets a fork of the process that all share have CUDA where that has imported these modules, too. The
    users' at once: a process may import them all, and its forks have what each has asked for."""
    found = warm_forks.run(PROGRAM, modules, directory=Path(__file__).parents[3])
    assert found.stdout.split() == [str(expected)], found.stderr
