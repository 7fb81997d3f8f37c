"""Random pointwise and reduction graphs: whatever the author writes computes what eager computes."""

import itertools

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.distill.kernels.launch_configs import LaunchLimits
from agent.distill.source.style import Style
from agent.distill.static import Distill
from storage.graph.as_fx import from_fx
from storage.records import Variant
from tests.agent.support import ANY, sample, tensor

UNARY = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "gelu": torch.nn.functional.gelu,
    "negated": lambda x: -x,
    "absolute": torch.abs,
    "shifted": lambda x: x * 0.5 + 1.0,
    "softplus": lambda x: torch.log1p(torch.exp(-torch.abs(x))),
    "clamped": lambda x: x.clamp(-1.0, 0.5),
    "positive": lambda x: torch.where(x > 0, x, 0.1 * x),
    "softmax": lambda x: torch.softmax(x, dim=-1),
    "centred": lambda x: x - x.mean(-1, keepdim=True),
    "normalised": lambda x: x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 0.1),
    "peaked": lambda x: x - x.amax(-1, keepdim=True),
    "swapped": lambda x: x.transpose(1, 2).contiguous().view(2, 6, 10),
    "rolled": lambda x: torch.cat((x[..., 2:], x[..., :2]), dim=-1),
    "spread": lambda x: x.sum(1, keepdim=True).expand(2, 6, 10) * 0.1,
}
BINARY = {"sum": torch.add, "difference": torch.sub, "product": torch.mul, "larger": torch.maximum}


programs = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(sorted(UNARY)), st.integers(0, 9)),
        st.tuples(st.sampled_from(sorted(BINARY)), st.integers(0, 9), st.integers(0, 9)),
    ),
    min_size=2,
    max_size=7,
)
_numbers = itertools.count()
MOST = 12
"""Of 25 random graphs."""


def function_of(program, outputs):
    """A function of two tensors that runs a program: each step reads earlier values, the last `outputs` come out."""

    def run(x, y):
        values = [x, y]
        for name, *operands in program:
            used = [values[-1 - operand % len(values)] for operand in operands]
            values.append((UNARY.get(name) or BINARY[name])(*used))
        return tuple(values[-outputs:])

    return run


def test_random_graphs(tmp_path, interpreter):
    written = []

    @settings(max_examples=15, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(program=programs, outputs=st.integers(1, 2), long_rows=st.booleans())
    def check(program, outputs, long_rows):
        graph = torch.fx.symbolic_trace(function_of(program, outputs)).graph
        graph.eliminate_dead_code()
        one = Variant("fusible", from_fx(graph), (tensor(2, 6, 10), tensor(2, 6, 10)), ())
        directory = tmp_path / f"pass_{next(_numbers)}"
        limits = LaunchLimits(persistent=4) if long_rows else LaunchLimits()
        submission = Distill(margin=ANY, style=Style(limits)).write(sample(one), directory)
        written.append(not submission.declined)
        if submission.declined:
            assert "views" in submission.reason or "match" in submission.reason, submission.reason
        else:
            assert interpreter.problems(directory, one) == []

    check()
    assert sum(written) >= MOST, "most have a pass"
