"""Random arithmetic on positions, which TorchInductor turns into index expressions: it computes what eager computes."""

import itertools

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.distill.static import Distill
from tests.agent.support import ANY, sample, tensor, variant

ROWS, COLUMNS = 6, 5
UNARY = {
    "negated": lambda n, k: -n,
    "absolute": lambda n, k: torch.abs(n),
    "shifted": lambda n, k: n + k,
    "counted_down": lambda n, k: k - n,
    "scaled": lambda n, k: n * k * 1000,
    "divided": lambda n, k: n // (k + 1),
    "rest": lambda n, k: n % (k + 1),
    "bounded": lambda n, k: n.clamp(-k, k),
    "mirrored": lambda n, k: n.flip(0),
    "turned": lambda n, k: torch.cat((n[:, 2:], n[:, :2].flip(1)), dim=1),
    "as_float": lambda n, k: (n.float() * 0.5).to(torch.int64),
    "wrapped": lambda n, k: (n + k).to(torch.int8) * 3,
    "marked": lambda n, k: (n > k).to(torch.int64) * 3,
}
BINARY = {
    "sum": torch.add,
    "difference": torch.sub,
    "product": torch.mul,
    "smaller": torch.minimum,
    "larger": torch.maximum,
}
programs = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(sorted(UNARY)), st.integers(0, 9), st.integers(0, 100)),
        st.tuples(st.sampled_from(sorted(BINARY)), st.integers(0, 9), st.integers(0, 9)),
    ),
    min_size=1,
    max_size=6,
)
_numbers = itertools.count()


def function_of(program):
    """A function of a tensor that adds to it what a program makes of its rows' and columns' numbers."""

    def run(x):
        rows, columns = torch.arange(ROWS, device="cuda"), torch.arange(COLUMNS, device="cuda")
        values = [rows[:, None].expand(ROWS, COLUMNS), columns[None, :].expand(ROWS, COLUMNS)]
        for name, first, second in program:
            value = values[-1 - first % len(values)]
            other = values[-1 - second % len(values)] if name in BINARY else second
            values.append((UNARY.get(name) or BINARY[name])(value, other))
        return x * 2.0 + values[-1]

    return run


@settings(max_examples=30, derandomize=True, suppress_health_check=list(HealthCheck))
@given(program=programs)
def test_random_positions(program, tmp_path, interpreter):
    one = variant(function_of(program), tensor(ROWS, COLUMNS))
    directory = tmp_path / f"pass_{next(_numbers)}"
    submission = Distill(margin=ANY).write(sample(one), directory)
    assert submission.compiler == "pass", submission.reason
    assert interpreter.problems(directory, one, draws=1) == []
