import operator
import time

import pytest
import torch
import torch.nn.functional as F
from torch import fx

from passbench.contract import ContractError, PassRule
from passbench.matching.rewrite import Applied, apply_pass
from passbench.matching.trace_pattern import trace_pattern
from tests.passbench.samples import fx_graph


def rule(pattern, replacement, name="rule", args=None) -> PassRule:
    parameters = pattern.__code__.co_varnames[: pattern.__code__.co_argcount]
    return PassRule(name, pattern, args or (lambda *picked: picked), replacement, parameters)


def rewritten(function, *rules: PassRule) -> tuple[fx.GraphModule, Applied]:
    graph = fx_graph(function)
    applied = apply_pass(graph, list(rules))
    return fx.GraphModule(torch.nn.Module(), graph), applied


def calls(module: fx.GraphModule) -> list[str]:
    return [getattr(n.target, "__name__", n.target) for n in module.graph.nodes if n.op.startswith("call_")]


def fused_add_relu(x, y):
    return torch.relu(x + y)


ADD_RELU = rule(lambda x, y: torch.relu(x + y), fused_add_relu)
X, Y, ONES = torch.randn(3, 4), torch.randn(3, 4), torch.ones(4)


def same(function, module, *inputs):
    expected, actual = (f(*(x.clone() for x in inputs)) for f in (function, module.forward))
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_every_match_is_replaced_and_the_rest_kept():
    def f(x, y):
        a = torch.relu(x + y)
        b = torch.relu(a + x)
        return (a * b, torch.relu(x))

    module, applied = rewritten(f, ADD_RELU)
    assert applied.matches == {"rule": 2}
    assert calls(module) == ["fused_add_relu", "fused_add_relu", "mul", "relu"]
    same(f, module, X, Y)


def test_matches_do_not_overlap():
    def f(x, y):
        return ((x + y) + y,)

    module, applied = rewritten(f, rule(lambda a, b: a + b + b, lambda a, b: a + 2 * b))
    assert applied.total == 1
    same(f, module, X, Y)

    def chain(x):
        return (torch.relu(torch.relu(torch.relu(x))),)

    module, applied = rewritten(chain, rule(lambda x: torch.relu(torch.relu(x)), lambda x: x.clamp_min(0)))
    assert applied.total == 1
    same(chain, module, X)


def test_equal_halves_are_matched_in_the_patterns_order():
    def f(x, y, w):
        scaled = x * w
        return (scaled * y, scaled * w, torch.relu(x))

    def halves(a, b, c, d):
        scaled = a * b
        return scaled * c, scaled * d

    def fused(a, b, c, d):
        return a * b * c, a * b * d

    module, applied = rewritten(f, rule(halves, fused))
    x, y, w = (n for n in module.graph.nodes if n.op == "placeholder")
    assert applied.total == 1 and applied.inserted[0].args == (x, w, y, w)
    same(f, module, X, Y, ONES)

    def many(x, *others):
        return tuple(x * y for y in others)

    def each(x, a, b, c, d, e, f, g, h, i, j, k, l):  # noqa: E741
        return many(x, a, b, c, d, e, f, g, h, i, j, k, l)

    began = time.process_time()
    module, applied = rewritten(each, rule(each, each))
    assert applied.inserted[0].args == tuple(n for n in module.graph.nodes if n.op == "placeholder")
    assert time.process_time() - began < 5

    def crossed(x, y, w):
        scaled = x * w
        return (scaled * w, torch.relu(scaled * y))

    def relu_first(a, b, c, d):
        scaled = a * b
        return torch.relu(scaled * c), scaled * d

    module, applied = rewritten(crossed, rule(relu_first, relu_first))
    assert applied.total == 1, "an order that the graph does not have is no condition"
    same(crossed, module, X, Y, ONES)


def test_passes_apply_in_order():
    def f(x, y):
        return (torch.relu(x + y), x + y)

    add = rule(lambda x, y: x + y, lambda x, y: torch.add(x, y), "add")
    module, applied = rewritten(f, ADD_RELU, add)
    assert applied.matches == {"rule": 1, "add": 1}
    module, applied = rewritten(f, add, ADD_RELU)
    assert applied.matches == {"add": 2, "rule": 0}
    same(f, module, X, Y)


def test_several_outputs_and_values_used_later():
    def f(x, y):
        total = x + y
        return (torch.relu(total), total * 2)

    module, applied = rewritten(f, ADD_RELU)
    assert applied.total == 0
    assert "return it from the pattern too" in applied.diagnosis()

    both = rule(lambda x, y: (x + y, torch.relu(x + y)), lambda x, y: (x + y, torch.relu(x + y)))
    assert rewritten(f, both)[1].total == 0  # that pattern adds twice

    def pattern(x, y):
        total = x + y
        return total, torch.relu(total)

    module, applied = rewritten(f, rule(pattern, lambda x, y: (x + y, torch.relu(x + y))))
    assert applied.total == 1
    same(f, module, X, Y)


def test_branches_that_share_an_input_only():
    def f(x, y):
        return (torch.sin(x), torch.cos(y), torch.cos(x))

    two = rule(lambda x: (torch.sin(x), torch.cos(x)), lambda x: (torch.sin(x), torch.cos(x)))
    module, applied = rewritten(f, two)
    assert applied.total == 1
    same(f, module, X, Y)


def test_a_match_whose_output_feeds_its_input_is_refused():
    def f(x):
        a = torch.sin(x)
        b = torch.exp(a)
        return (a, torch.cos(b))

    pair = rule(lambda x, z: (torch.sin(x), torch.cos(z)), lambda x, z: (torch.sin(x), torch.cos(z)))
    _, applied = rewritten(f, pair)
    assert applied.total == 0
    assert "no input of the match to depend on its outputs" in applied.diagnosis()


def test_the_same_parameter_is_the_same_value():
    square = rule(lambda x: x * x, lambda x: x**2)
    assert rewritten(lambda x, y: (x * x, x * y), square)[1].total == 1


def test_literals_of_replacement_args():
    def f(x, y):
        return (torch.relu(x + y),)

    picked = rule(
        lambda x, y: torch.relu(x + y), lambda y, route, x: fused_add_relu(x, y), args=lambda x, y: (y, "r", x)
    )
    module, _ = rewritten(f, picked)
    (call,) = (n for n in module.graph.nodes if n.op == "call_function")
    assert call.args[1] == "r"
    same(f, module, X, Y)


def test_in_place_operators_are_traced_as_such():
    def f(x, y):
        x += y
        return (torch.relu(x),)

    assert calls(fx.GraphModule(torch.nn.Module(), fx_graph(f))) == ["iadd", "relu"]
    assert rewritten(f, ADD_RELU)[1].total == 0

    def pattern(x, y):
        x += y
        return torch.relu(x)

    module, applied = rewritten(f, rule(pattern, fused_add_relu))
    assert applied.total == 1
    same(f, module, X.clone(), Y)


def test_setitem_without_a_result_is_matched():
    def f(x, y):
        z = torch.sin(x)
        z[0] = y[0]
        return (z * 2,)

    def pattern(z, y):
        z[0] = y[0]
        return z * 2

    module, applied = rewritten(f, rule(pattern, lambda z, y: torch.cat([y[:1], z[1:]]) * 2))
    assert applied.total == 1
    same(f, module, X, Y)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (lambda x: x, "computes nothing"),
        (lambda x, y: torch.relu(x), "does not use its parameter 'y'"),
        (lambda x: (torch.relu(x), x), "no result of its operations"),
        (lambda x: torch.relu(x) if x.sum() > 0 else x, "cannot be traced"),
        (lambda x: None if torch.relu(x) is None else 3, "must return a tensor"),
        (lambda x: x + ONES, "own; take it as a parameter"),
        (lambda x: torch.nn.ReLU()(x), "module is not installed"),
    ],
)
def test_malformed_patterns(pattern, message):
    with pytest.raises(ContractError, match=message):
        trace_pattern(pattern, "broken")


def test_a_parameter_does_not_stand_for_what_is_inside():
    def f(x):
        a = torch.sin(x)
        return (a + a,)

    _, applied = rewritten(f, rule(lambda x, y: torch.sin(x) + y, lambda x, y: torch.sin(x) + y))
    assert applied.total == 0
    assert "y to be computed outside the match" in applied.diagnosis()


def test_one_value_for_two_parameters():
    module, applied = rewritten(lambda x: (torch.relu(x + x),), ADD_RELU)
    assert applied.total == 1
    same(lambda x: (torch.relu(x + x),), module, X)


def test_nodes_in_between_move_where_the_replacement_leaves_them_room():
    def f(x, y):
        a = torch.sin(x)
        b = torch.exp(a)
        c = torch.cos(y)
        return (a * c, b)

    def pattern(x, c):
        a = torch.sin(x)
        return a, a * c

    module, _ = rewritten(f, rule(pattern, pattern))
    assert calls(module) == ["cos", "pattern", "getitem", "getitem", "exp"]
    same(f, module, X, Y)


def test_outputs_that_nothing_reads_are_left_out():
    def f(x):
        a = torch.sin(x)
        return (torch.exp(a),)

    def pattern(x):
        a = torch.sin(x)
        return a, torch.exp(a)

    module, _ = rewritten(f, rule(pattern, pattern))
    assert calls(module) == ["pattern", "getitem"]
    same(f, module, X)


def test_inserted_calls_are_told_and_never_matched():
    def f(x, y):
        return (torch.relu(x + y)[0], torch.relu(y + y))

    def first(x, y):
        total = x + y
        return total, torch.relu(total)

    again = rule(lambda v: v[1], lambda v: v.select(0, 1), "again")
    module, applied = rewritten(f, rule(first, first, "first"), again)
    assert applied.matches == {"first": 2, "again": 0}
    assert [n.target for n in applied.inserted] == [first, first]
    same(f, module, X, Y)


def test_a_whole_graph_and_a_graph_without_inputs():
    def f(x, y):
        a, b = x.chunk(2, -1)
        return a * b + y[:, :2], a

    module, applied = rewritten(f, rule(f, f))
    assert calls(module) == ["f", "getitem", "getitem"]
    same(f, module, X, Y)

    def constant():
        return (torch.arange(4) * 2,)

    module, applied = rewritten(constant, rule(lambda: torch.arange(4) * 2, lambda: torch.arange(0, 8, 2)))
    assert applied.total == 1
    same(constant, module)


def test_deep_patterns_and_many_unconnected_parts():
    def chain(x):
        for _ in range(600):
            x = torch.sin(x)
        return x

    assert rewritten(lambda x: (chain(x),), rule(chain, lambda x: x))[1].total == 1

    def f(x):
        return tuple(torch.sin(x * k) for k in range(300))

    def pattern(a, b, c, d, e):
        return torch.sin(a), torch.sin(b), torch.sin(c), torch.sin(d), torch.cos(e)

    _, applied = rewritten(f, rule(pattern, pattern))
    assert applied.total == 0
    assert applied.diagnosis()


def test_a_change_outside_the_matches_is_found(monkeypatch):
    from passbench.matching import rewrite

    replace = rewrite._Rewriting._replace

    def tampering(self, match, where, rule_, arguments):
        replace(self, match, where, rule_, arguments)
        next(n for n in self.graph.nodes if n.target is torch.exp).args = (next(iter(self.graph.nodes)),)

    monkeypatch.setattr(rewrite._Rewriting, "_replace", tampering)
    with pytest.raises(rewrite.RewriteError, match="exp outside the matches was changed"):
        rewritten(lambda x, y: (torch.relu(x + y), torch.exp(y)), ADD_RELU)


def test_many_rules_and_nodes_take_no_time():
    def f(x, y):
        for _ in range(1000):
            x = torch.sin(F.relu(x + y, inplace=True).view(3, 4))
        return (x,)

    graph = fx_graph(f)

    def scaled(k):
        return lambda x: torch.exp(x * k) + 1

    rules = [rule(scaled(k), lambda x: x, f"rule{k}") for k in range(4)]
    fused = rule(lambda x, y: F.relu(x + y, inplace=True), fused_add_relu, "fused")
    start = time.process_time()
    applied = apply_pass(graph, [*rules, fused])
    assert applied.matches["fused"] == 1000
    assert time.process_time() - start < 2  # 0.2 s


def test_operators_have_their_own_targets():
    graph = fx_graph(lambda x: (operator.getitem(x, 0),))
    assert apply_pass(graph, [rule(lambda x: x[0], lambda x: x.select(0, 0))]).total == 1
