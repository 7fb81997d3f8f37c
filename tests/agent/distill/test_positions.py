"""Random arithmetic on positions, which TorchInductor turns into index expressions: it computes what eager computes."""

import itertools

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.distill.static import Distill
from tests.agent.distill.test_ordered import _pass
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


@settings(max_examples=16, derandomize=True, suppress_health_check=list(HealthCheck))
@given(program=programs)
def test_random_positions(program, tmp_path, interpreter):
    one = variant(function_of(program), tensor(ROWS, COLUMNS))
    directory = tmp_path / f"pass_{next(_numbers)}"
    submission = Distill(margin=ANY).write(sample(one), directory)
    assert submission.compiler == "pass", submission.reason
    assert interpreter.problems(directory, one, draws=1) == []


def test_numbers_that_are_computed_of_positions_are_rounded_as_tensors_are(tmp_path, interpreter):
    """TorchInductor knows the last position and what is added to it, and would have a kernel multiply by the reciprocal
    as if it were an argument (typical-0df2d21be093, whose sines were wrong near multiples of 2 pi)."""

    def function(x, device="cuda"):
        places = torch.arange(1, 8, dtype=torch.float32, device=device)
        last = places[-1:]
        halves = torch.arange(1, 8, device=device)[-1:].to(torch.float16)
        turned = places / (last + 1e-6) * 6.2831853 + x
        return turned, x / last, (last + 0.1) * 0.3 - 0.7 + x, x.half() / halves, x / 7.0

    one, source = _pass(lambda x: function(x), (tensor(5, 7),), tmp_path / "pass")
    assert source.count("tl.div_rn(") == 3 and source.count(" * 0.14285714") == 1
    x = torch.randn(5, 7, generator=torch.Generator().manual_seed(1))
    found = interpreter.results(tmp_path / "pass", one, [x])
    for have, want in zip(found[:4], function(x, "cpu"), strict=False):
        assert torch.equal(have, want)
