import operator

import pytest
import torch
import torch.nn.functional as F
from torch import fx

from passbench.contract import ContractError, PassRule
from passbench.pattern import trace_pattern
from passbench.rewrite import Applied, apply_pass
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
    assert "before its first output is used" in applied.diagnosis()


@pytest.mark.parametrize(
    "pattern",
    [
        lambda x, w, b: F.layer_norm(x, (4,), w, b, 1e-5),
        lambda x, w, b: F.layer_norm(x, (4,), weight=w, bias=b, eps=1e-5),
        lambda x, w, b: F.layer_norm(x, [4], bias=b, weight=w),
    ],
)
def test_keywords_and_positions_are_the_same(pattern):
    def f(x, w, b):
        return (F.layer_norm(x, (4,), w, b, 1e-5),)

    assert rewritten(f, rule(pattern, lambda x, w, b: x))[1].total == 1


def test_methods_and_builtins_by_schema():
    def f(x):
        return (x.reshape(2, 6).sum(-1, True).softmax(0), torch.flatten(x, 0))

    def pattern(x):
        return x.reshape((2, 6)).sum(dim=-1, keepdim=True).softmax(dim=0)

    assert rewritten(f, rule(pattern, lambda x: x))[1].total == 1
    assert rewritten(f, rule(lambda x: torch.flatten(x, start_dim=0, end_dim=-1), lambda x: x))[1].total == 1


def test_constants_must_be_equal_and_parameters_take_them():
    def f(x):
        return (x * 2, torch.sum(x, 1))

    replacement = lambda x: x * 2  # noqa: E731
    assert rewritten(f, rule(lambda x: x * 2, replacement))[1].total == 1
    _, applied = rewritten(f, rule(lambda x: x * 2.0, replacement))
    assert "expected argument 2.0, found 2" in applied.diagnosis()
    assert rewritten(f, rule(lambda x: x * True, replacement))[1].total == 0
    module, applied = rewritten(f, rule(lambda x, dim: torch.sum(x, dim), lambda x, dim: x.sum(dim)))
    assert applied.total == 1
    same(f, module, X)


def test_the_same_parameter_is_the_same_value():
    square = rule(lambda x: x * x, lambda x: x**2)
    assert rewritten(lambda x, y: (x * x, x * y), square)[1].total == 1


def test_devices_do_not_count():
    def f(x):
        return (x + torch.arange(4, device=torch.device("cpu")),)

    def pattern():
        return torch.arange(4, device="cuda")

    assert rewritten(f, rule(pattern, lambda: torch.arange(4)))[1].total == 1


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


def test_nothing_moves_across_a_change_in_place():
    def f(x, y):
        a = torch.sin(x)
        x.add_(1)
        return (torch.exp(a), x * y)

    pair = rule(lambda x: torch.exp(torch.sin(x)), lambda x: torch.exp(torch.sin(x)))
    _, applied = rewritten(f, pair)
    assert applied.total == 0
    assert "no change in place between" in applied.diagnosis()

    def through_a_view(x, y):
        a = torch.sin(x)
        x.view(-1)[0:1].mul_(2)
        return (torch.exp(a),)

    assert rewritten(through_a_view, pair)[1].total == 0

    def elsewhere(x, y):
        a = torch.sin(x)
        z = y + 1
        z.add_(1)
        return (torch.exp(a), z)

    module, applied = rewritten(elsewhere, pair)
    assert applied.total == 1
    same(elsewhere, module, X, Y)


def test_what_a_pattern_changes_in_place_is_not_read_afterwards():
    def f(x, y):
        z = torch.sin(x)
        flat = z.view(-1)
        z += y
        return (z, flat * 2)

    def pattern(z, y):
        z += y
        return z

    _, applied = rewritten(f, rule(pattern, lambda z, y: z + y))
    assert applied.total == 0
    assert "not to be used afterwards" in applied.diagnosis()


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


def test_the_diagnosis_names_both_nodes_and_the_difference():
    def f(x, y):
        return (F.relu(x - y, inplace=True),)

    _, applied = rewritten(f, rule(lambda x, y: F.relu(x + y, inplace=True), fused_add_relu, "fuse"))
    text = applied.diagnosis()
    for part in ("pass fuse", "0 of 2 pattern nodes", "add = operator.add(x, y)", "sub = operator.sub(x, y)"):
        assert part in text
    assert text.endswith("expected operator.add, found operator.sub")
    _, applied = rewritten(f, rule(lambda x: torch.tanh(x), fused_add_relu))
    assert "calls of operator.sub, torch.nn.functional.relu" in applied.diagnosis()


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (lambda x: x, "computes nothing"),
        (lambda x, y: torch.relu(x), "does not use its parameter 'y'"),
        (lambda x: (torch.relu(x), x), "no result of its operations"),
        (lambda x: torch.relu(x) if x.sum() > 0 else x, "cannot be traced"),
        (lambda x: None if torch.relu(x) is None else 3, "must return a tensor"),
        (lambda x: x + ONES, "own; take it as a parameter"),
    ],
)
def test_malformed_patterns(pattern, message):
    with pytest.raises(ContractError, match=message):
        trace_pattern(pattern, "broken")


def test_operators_have_their_own_targets():
    graph = fx_graph(lambda x: (operator.getitem(x, 0),))
    assert apply_pass(graph, [rule(lambda x: x[0], lambda x: x.select(0, 0))]).total == 1
