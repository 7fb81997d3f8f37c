"""Branches of a CUDA graph: which units run side by side, the source that says so, and what it computes."""

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agent.ahead.quick_measure import QuickMeasure
from agent.distill.branches import BRANCHES, Unit, branched, is_atomic, parts, spread_out
from agent.distill.source.style import Style
from agent.distill.static import Distill
from passbench.policy.check import check_dir
from storage.graph.record import Op
from tests.agent.support import ANY, in_dtype, sample, tensor, variant

BRANCHED = Style(captured=True, branches=True)


def _unit(number, cost, *needs):
    operands = ", ".join(["in_0", *(f"tmp_{n}" for n in needs)])
    return Unit([f"tmp_{number} = work({number}, {operands})"], cost, frozenset(needs))


def test_independent_units_are_side_by_side():
    """Two chains of three, joined by a last one."""
    chains = [_unit(n, 10.0, *((n - 1,) if n % 3 else ())) for n in range(6)]
    units, share = spread_out([*chains, _unit(6, 10.0, 2, 5)])
    assert share == pytest.approx(42.0 / 70.0), "three, a wait, and the last one, of seven"
    assert len({unit.branch for unit in units}) == 2
    assert len(parts(units)) == 3, "each chain is a function, and what joins them"


def test_a_chain_stays_in_one_branch():
    units, share = spread_out([_unit(n, 10.0, *((n - 1,) if n else ())) for n in range(5)])
    assert share == 1.0 and {unit.branch for unit in units} == {0} and len(parts(units)) == 1


def test_a_branch_waits_for_what_it_needs_and_for_nothing_behind_that():
    """Gradients of weights beside those of inputs: each needs one step of the chain, which goes on meanwhile."""
    chain = [_unit(n, 10.0, *((n - 1,) if n else ())) for n in range(3)]
    units, share = spread_out([*chain, *(_unit(3 + n, 9.0, n) for n in range(3))])
    assert share < 0.8
    found = [(part.branch, [line.split(" = ")[0] for line in part.lines]) for part in parts(units)]
    assert (0, ["tmp_0"]) in found and (0, ["tmp_1"]) in found


@dataclass
class _Called:
    """Runs the source of branches: `work` needs all its operands, and a part all its arguments."""

    order: list[int]

    def work(self, number, *operands):
        assert all(operand is not None for operand in operands)
        self.order.append(number)
        return (number, *operands)


@st.composite
def _graphs(draw):
    count = draw(st.integers(1, 12))
    costs = [draw(st.sampled_from([2.0, 5.0, 30.0])) for _ in range(count)]
    return [
        _unit(n, costs[n], *draw(st.sets(st.integers(0, n - 1), max_size=3) if n else st.just(())))
        for n in range(count)
    ]


@given(_graphs())
def test_branches_compute_what_the_lines_compute_in_order(given_units):
    units, share = spread_out(given_units)
    assert share <= 1.0 + 1e-9 and all(unit.branch < BRANCHES for unit in units)
    returned = ", ".join(f"tmp_{n}" for n in range(len(units)))
    functions, lines = branched(units, (), returned)
    plain, mine = _Called([]), _Called([])
    expected, found = {"work": plain.work, "in_0": "x"}, {"work": mine.work, "branch": lambda n, f, *given: f(*given)}
    exec("\n".join(line for unit in given_units for line in unit.lines), expected)
    exec("\n".join([*functions, "def steps(in_0):", *(f"    {line}" for line in lines)]), found)
    results = found["steps"]("x")
    results = results if len(units) > 1 else (results,)
    assert list(results) == [expected[f"tmp_{n}"] for n in range(len(units))]
    assert sorted(mine.order) == plain.order, "each unit once"


@given(_graphs(), st.data())
def test_nothing_runs_beside_what_is_alone(given_units, data):
    """Each part is before or behind every part with such a unit: by its branch, or by what it waits for."""
    alone = data.draw(st.sets(st.integers(0, len(given_units) - 1), min_size=1, max_size=3))
    units, _ = spread_out([replace(unit, alone=n in alone) for n, unit in enumerate(given_units)])
    functions, lines = branched(units, (), ", ".join(f"tmp_{n}" for n in range(len(units))))
    made: dict[str, int] = {}  # by part
    before: list[set[int]] = []
    latest: dict[int, int] = {}
    inside: list[set[int]] = []

    def branch(number, function, *arguments):
        ran = _Called([])
        space["work"] = lambda unit, *operands: ran.order.append(unit) or f"made by {unit}"
        results = function(*arguments)
        waits = {made[a] for a in arguments if a in made} | ({latest[number]} if number in latest else set())
        before.append(waits.union(*(before[n] for n in waits)))
        latest[number] = len(before) - 1
        inside.append(set(ran.order))
        for name in results if isinstance(results, tuple) else (results,):
            made.setdefault(name, len(before) - 1)
        return results

    space = {"branch": branch, "in_0": "x"}
    exec("\n".join([*functions, "def steps(in_0):", *(f"    {line}" for line in lines)]), space)
    space["steps"]("x")
    for number in alone:
        (own,) = (n for n, units_of in enumerate(inside) if number in units_of)
        assert all(n == own or n in before[own] or own in before[n] for n in range(len(inside)))


def _gradients(grad, x, w, v):
    """Products of a backward of two linears, and what else is read of the same gradients."""
    into = torch.mm(grad, v)
    into = torch.ops.aten.threshold_backward.default(into, x, 0)
    return torch.mm(grad.t(), x), grad.amax(0), torch.mm(into.t(), x), into.amax(0), torch.mm(into, w)


def _convolved(grad, x, w, v):
    """Backwards of three convolutions: three gradients, two, and one."""
    first = torch.ops.aten.convolution_backward.default(
        grad, x, w, [4], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True]
    )
    into = torch.ops.aten.hardswish_backward.default(first[0], x)
    second = torch.ops.aten.convolution_backward.default(
        into, x, v, [0], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False]
    )
    third = torch.ops.aten.convolution_backward.default(
        grad, x, v, [0], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, False, False]
    )
    return first[1], first[2], second[0], second[1], third[0]


CASES = {
    "gradients": (_gradients, (tensor(64, 32), tensor(64, 32), tensor(32, 16), tensor(32, 32))),
    "convolved": (_convolved, (*[tensor(2, 4, 6, 6)] * 2, tensor(4, 4, 3, 3), tensor(4, 4, 3, 3))),
}


def _written(name, directory, regions, dtype="float32"):
    function, inputs = CASES[name]
    one = variant(function, *in_dtype(inputs, dtype))
    task = Distill(margin=ANY).task(sample(one), ANY, whole=True)
    patterns = tuple(task.gains()) if regions else ()
    assert task.branches(patterns)
    assert task.write(patterns, BRANCHED, directory).compiler == "pass"
    assert check_dir(directory) == []
    return one, (directory / "whole_graph_0.py").read_text()


@pytest.mark.parametrize("regions", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_a_pass_with_branches(name, regions, tmp_path, interpreter):
    one, source = _written(name, tmp_path / "pass", regions)
    assert {f"branch({n}," for n in range(2)} <= {line.split(" = ")[-1][:9] for line in source.splitlines()}
    assert interpreter.problems(tmp_path / "pass", one, draws=2) == []


def test_each_gradient_of_a_convolution_is_a_call(tmp_path):
    _, source = _written("convolved", tmp_path / "pass", regions=False)
    calls = source[source.index("def part_0") : source.index("def library")]
    assert "[True, True" not in calls, "eager computes all in one call, one after another"
    only = [[n == which for n in range(3)] for which in (0, 1, 2)]
    assert [calls.count(repr(mask)) for mask in only] == [3, 2, 1]


@pytest.mark.parametrize(
    ("target", "args", "atomic"),
    [
        ("torch.ops.aten.convolution_backward.default", (*(0,) * 10, [True, False, True]), False),
        ("torch.ops.aten.convolution_backward.default", (*(0,) * 10, [False, True, False]), True),
        ("torch.ops.aten.index_add.default", (), True),
        ("torch.index_add", (), True),
        ("torch.ops.aten.index_put.default", (), False),
        ("torch.ops.aten.mm.default", (), False),
    ],
)
def test_what_adds_by_atomic_operations(target, args, atomic):
    assert is_atomic(Op("function", target, args, {})) is atomic


def test_what_writes_in_place_has_no_branches():
    def writes(x, w):
        y = torch.mm(x, w)
        y += 1.0
        return y, torch.mm(x, x)

    task = Distill(margin=ANY).task(sample(variant(writes, tensor(8, 8), tensor(8, 8))), ANY, whole=True)
    assert task.any_whole and not task.branches(())


def test_no_branch_reads_a_tuple_of_another_one():
    """Of tensors in a tuple a branch does not know which other one has made them."""

    def halves(x, w, v):
        first, second = torch.mm(x, w), torch.split(torch.mm(x, v), 4, 1)
        return torch.mm(first, v), torch.cat(second, 0), torch.mm(second[0], w[:4]), torch.mm(second[1], v[:4])

    inputs = [tensor(8, 8)] * 3
    task = Distill(margin=ANY).task(sample(variant(halves, *inputs)), ANY, whole=True)
    assert task.any_whole and not task.branches(())
    units = [_unit(0, 10.0), _unit(1, 10.0, 0), _unit(2, 10.0, 0)]
    units[2].branch = 1
    assert branched(units, (), "tmp_1, tmp_2")
    assert branched(units, (), "tmp_1, tmp_2", {"tmp_0"}) is None


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_branches_have_eagers_bits_on_a_gpu(name, dtype, tmp_path):
    one, _ = _written(name, tmp_path / "pass", regions=False, dtype=dtype)
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result
