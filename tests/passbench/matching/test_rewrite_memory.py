"""In-place operations, views, random numbers and contexts around and inside matches."""

import operator

import pytest
import torch
import torch.nn.functional as F
from torch import fx

from passbench.matching.memory_effects import Memory
from passbench.matching.rewrite import apply_pass
from tests.passbench.matching.test_rewrite import X, Y, calls, fx_graph, rewritten, rule, same


def exp_sin(x):
    return torch.exp(torch.sin(x))


def refused(pattern, function, reason):
    _, applied = rewritten(function, rule(pattern, pattern))
    assert applied.total == 0
    assert reason in applied.diagnosis()


def replaced(pattern, replacement, function, *inputs):
    """The replacement neither writes nor returns views; results must be the same still."""
    module, applied = rewritten(function, rule(pattern, replacement))
    assert applied.total == 1, applied.diagnosis()
    same(function, module, *inputs)
    return module


def test_the_call_goes_before_a_later_change_of_its_input():
    def f(x, y):
        a = torch.sin(x)
        x.add_(1)
        return (torch.exp(a), x * y)

    assert calls(replaced(exp_sin, exp_sin, f, X, Y)) == ["exp_sin", "add_", "mul"]


def test_the_call_goes_behind_an_earlier_change_of_what_only_later_parts_read():
    def f(x, y):
        a = torch.sin(x)
        y.add_(1)
        return (a * y,)

    def pattern(x, y):
        return torch.sin(x) * y

    replaced(pattern, pattern, f, X, Y)


def test_nothing_moves_across_a_change_in_place():
    def pattern(x):
        return torch.sin(x) * torch.cos(x)

    def direct(x):
        a = torch.sin(x)
        x.add_(1)
        return (a * torch.cos(x),)

    def through_a_view(x):
        a = torch.sin(x)
        x.view(-1)[0:1].mul_(2)
        return (a * torch.cos(x),)

    def by_assignment(x):
        a = torch.sin(x)
        x[0] = 2.0
        return (a * torch.cos(x),)

    for f in (direct, through_a_view, by_assignment):
        refused(pattern, f, "no change in place between the matched operations")

    def elsewhere(x, y):
        a = torch.sin(x)
        z = y + 1
        z.add_(1)
        return (a * torch.cos(x), z)

    replaced(pattern, pattern, elsewhere, X, Y)


def test_a_change_in_the_pattern_is_seen_through_its_results_only():
    def pattern(z, y):
        z += y
        return z

    def through_an_earlier_view(x, y):
        z = torch.sin(x)
        flat = z.view(-1)
        z += y
        return (z, flat * 2)

    def returned_itself(x, y):
        x.add_(y)
        return (x,)

    refused(pattern, through_an_earlier_view, "not to be used afterwards")
    refused(lambda x, y: x.add_(y) * 2, lambda x, y: (x.add_(y) * 2, x), "not to be used afterwards")
    refused(lambda x, y: x.add_(y), returned_itself, "not to be used afterwards")

    def result_used(x, y):
        z = torch.sin(x)
        z += y
        return (z * 2, z.view(-1))

    replaced(pattern, lambda z, y: z + y, result_used, X, Y)


def test_an_intermediate_changed_in_place():
    def f(x, y):
        t = x + y
        t = F.relu(t, inplace=True)
        return (t.mul_(2),)

    def pattern(x, y):
        return F.relu(x + y, inplace=True).mul_(2)

    replaced(pattern, lambda x, y: torch.relu(x + y) * 2, f, X, Y)
    refused(lambda x, y: torch.relu(x + y), f, "which is the same in place")

    def reused(x, y):
        t = x + y
        r = F.relu(t, inplace=True)
        return (r, t * 2)

    refused(lambda x, y: F.relu(x + y, inplace=True), reused, "return it from the pattern too")

    def both(x, y):
        t = x + y
        return F.relu(t, inplace=True), t

    def twice(x, y):
        t = torch.relu(x + y)
        return t, t

    replaced(both, twice, reused, X, Y)


def test_results_that_share_memory_with_what_changes_later():
    view = rule(lambda x: x.view(-1), lambda x: x.view(-1).clone(), "view")

    def through_the_result(x):
        x.view(-1).mul_(2)
        return (x + 0,)

    def through_the_input(x):
        z = torch.sin(x)
        flat = z.view(-1)
        z.mul_(2)
        return (flat,)

    def reaches_the_callers_input(x):
        return (x.view(-1).mul_(2),)

    for f, reason in (
        (through_the_result, "not to share memory, through the match"),
        (through_the_input, "not to share memory, through the match"),
        (reaches_the_callers_input, "no view of the input x to be changed in place later"),
    ):
        _, applied = rewritten(f, view)
        assert applied.total == 0
        assert reason in applied.diagnosis()

    def harmless(x):
        z = torch.sin(x)
        flat = z.view(-1)
        return (flat.mul_(2),)

    module, applied = rewritten(harmless, view)
    assert applied.total == 1
    same(harmless, module, X)


def test_parameters_that_share_memory_which_the_pattern_changes():
    def pattern(z, y):
        z += y
        return z * y

    def f(x):
        v = x[:]
        z = operator.iadd(x, v)
        return (z * v,)

    refused(pattern, f, "expected y not to share memory with z, as the pattern changes that in place")
    refused(lambda x, y: operator.imul(x, y), lambda x: (operator.imul(x, x),), "expected y not to share memory with x")


def test_reads_and_writes_keep_the_patterns_order():
    def pattern(x, y):
        a = torch.sin(x)
        x.mul_(2)
        return a, x + y

    def other(x, y):
        z = torch.exp(x)
        z.mul_(2)
        return torch.sin(z), z + y

    refused(pattern, other, "changes in place and random draws in the pattern's order")


def test_random_draws_keep_their_order():
    def pattern(x, y):
        return F.dropout(x, 0.5, True) + F.dropout(y, 0.5, True)

    def between(x, y):
        a = F.dropout(x, 0.5, True)
        noise = torch.rand_like(x)
        return (a + F.dropout(y, 0.5, True), noise)

    def turned(x, y):
        b = F.dropout(y, 0.5, True)
        a = F.dropout(x, 0.5, True)
        return (a + b,)

    refused(pattern, between, "no random numbers drawn between")
    refused(pattern, turned, "random draws in the pattern's order")

    def evaluated(x, y):
        a = F.dropout(x, 0.5, False)
        noise = torch.rand_like(x)
        return (a + F.dropout(y, 0.5, False), noise * 0)

    def quiet(x, y):
        return F.dropout(x, 0.5, False) + F.dropout(y, 0.5, False)

    replaced(quiet, lambda x, y: x + y, evaluated, X, Y)


def test_nothing_crosses_an_autocast_boundary():
    graph = fx.Graph()
    x = graph.placeholder("x")
    sin = graph.call_function(torch.sin, (x,))
    entered = graph.call_function(torch.amp.autocast_mode._enter_autocast, ("cpu", torch.bfloat16, True, None))
    exp = graph.call_function(torch.exp, (sin,))
    graph.call_function(torch.amp.autocast_mode._exit_autocast, (entered,))
    graph.output(exp)
    applied = apply_pass(graph, [rule(exp_sin, exp_sin)])
    assert applied.total == 0
    assert "no autocast boundary inside the match" in applied.diagnosis()
    assert apply_pass(graph, [rule(lambda x: torch.exp(x), torch.exp)]).total == 1


def test_a_replacement_has_the_effects_of_what_it_replaces():
    """A later rule may not move reads across a call that took a write's place."""

    def f(x, y):
        z = torch.sin(x)
        a = torch.cos(z)
        z2 = z.mul_(y)
        b = torch.tan(y)
        return (z2, a * b)

    def write(z, y):
        return z.mul_(y)

    def late(z, y):
        return torch.cos(z) * torch.tan(y)

    module, applied = rewritten(f, rule(write, write, "write"), rule(late, late, "late"))
    assert applied.matches == {"write": 1, "late": 1}
    same(f, module, X, Y)
    assert calls(module).index("late") < calls(module).index("write")


@pytest.mark.parametrize(
    ("function", "shares"),
    [
        (lambda x: torch.sin(x), False),
        (lambda x: x + 1, False),
        (lambda x: F.relu(x), False),
        (lambda x: x.size(), False),
        (lambda x: x.shape, False),
        (lambda x: F.layer_norm(x, (4,)), False),
        (lambda x: torch.cat([x, x]), False),
        (lambda x: x.mT, True),
        (lambda x: x.view(-1), True),
        (lambda x: x.float(), True),
        (lambda x: x[0], True),
        (lambda x: F.relu(x, inplace=True), True),
        (lambda x: operator.iadd(x, 1), True),
        (lambda x: F.dropout(x, 0.1, False), True),
        (lambda x: torch.einsum("ij->ji", x), True),
        (lambda x: torch.ops.aten.add_.Tensor(x, x), True),
        (lambda x: x.type_as(x), True),
    ],
)
def test_what_shares_memory(function, shares):
    graph = fx_graph(lambda x: (function(x),))
    memory = Memory(graph)
    x, node = (n for n in graph.nodes if n.op != "output")
    assert (memory.of(x) is memory.of(node)) is shares


@pytest.mark.parametrize(
    ("function", "written"),
    [
        (lambda x, y: torch.ops.aten.add_.Tensor(x, y), "x"),
        (lambda x, y: operator.setitem(x, 0, y), "x"),
        (lambda x, y: torch.add(x, 1, out=y), "y"),
        (lambda x, y: F.embedding(x, y, max_norm=1.0), "y"),
        (lambda x, y: F.embedding(x, y), ""),
        (lambda x, y: F.batch_norm(x, y, y, training=True), "y"),
        (lambda x, y: F.batch_norm(x, y, y), ""),
    ],
)
def test_what_is_written(function, written):
    graph = fx_graph(lambda x, y: (function(x, y),))
    effects = Memory(graph).effects
    assert {v.name for e in effects.values() for v in e.writes} == set(written)
