"""How long calls and the nodes of a graph take."""

PROGRAM = """
import torch
from torch import fx
from passbench.models.call_times import node_times

class Sum(torch.nn.Module):
    def forward(self, x, y):
        return torch.relu(x + y)

times = node_times(fx.symbolic_trace(Sum()), [torch.ones(300), torch.ones(300)])
assert set(times) >= {"add", "relu"} and all(us > 0 for us in (times["add"], times["relu"])), times
"""


def test_nodes_have_times_and_the_profiler_writes_no_error(torch_forks):
    done = torch_forks(PROGRAM)
    assert done.returncode == 0 and not done.stderr, done.stderr
