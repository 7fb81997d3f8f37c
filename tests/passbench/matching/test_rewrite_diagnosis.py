"""The diagnosis says what to change in a pattern that matched nowhere."""

import pytest
import torch
import torch.nn.functional as F

from tests.passbench.matching.test_rewrite import rewritten, rule


def block(x, w, b, y):
    h = F.layer_norm(x, (4,), w, b, 1e-6)
    s = F.softmax(h * 0.5, dim=-1)
    r = F.relu(s - y, inplace=True)
    return (r + x, torch.cos(y))


def wrong_constant(x):
    return F.softmax(x * 0.25, dim=-1)


def wrong_dim(x):
    return F.softmax(x * 0.5, dim=1)


def missing_keyword(x, w, b):
    return F.layer_norm(x, (4,), w, b) * 0.5


def implied_dim(x):
    return F.softmax(x * 0.5)


def output_missing(x, y):
    h = x * 0.5
    s = F.softmax(h, dim=-1)
    torch.cos(y)
    return s - y


def wrong_order(x, y):
    return F.relu(y - F.softmax(x * 0.5, dim=-1), inplace=True)


def out_of_place(x, y):
    return F.relu(F.softmax(x, dim=-1) - y)


def in_place(x, y):
    s = F.softmax(x, dim=-1)
    s -= y
    return s


def unknown(x):
    return torch.tanh(x) * 3


@pytest.mark.parametrize(
    ("pattern", "matched", "source", "node", "difference"),
    [
        (wrong_constant, "1 of 2", "x * 0.25", "mul = operator.mul(layer_norm, 0.5)", "argument 0.25, found 0.5"),
        (wrong_dim, "1 of 2", "F.softmax(x * 0.5, dim=1)", "softmax = torch.nn", "expected dim=1, found dim=-1"),
        (missing_keyword, "1 of 2", "F.layer_norm(x, (4,), w, b)", "layer_norm = ", "eps=1e-05, found eps=1e-06"),
        (implied_dim, "1 of 2", "F.softmax(x * 0.5)", "softmax = ", "expected dim=None, found dim=-1"),
        (
            output_missing, "4 of 4", "torch.cos(y)", "cos = torch.cos(y)",
            "a use outside by the graph's output; return it from the pattern too",
        ),
        (
            wrong_order, "3 of 4", "y - F.softmax(x * 0.5, dim=-1)", "sub = operator.sub(softmax, y)",
            "the operands are the other way round",
        ),
        (out_of_place, "2 of 3", "F.relu(F.softmax(x, dim=-1) - y)", "relu = ", "inplace=False, found inplace=True"),
        (in_place, "1 of 2", "s -= y", "sub = operator.sub(softmax, y)", "sub, which is the same not in place"),
        (unknown, "0 of 2", "torch.tanh(x) * 3", "mul = operator.mul(layer_norm, 0.5)", "argument 3, found 0.5"),
    ],
)  # fmt: skip
def test_typical_mistakes(pattern, matched, source, node, difference):
    _, applied = rewritten(block, rule(pattern, pattern, "fuse"))
    assert applied.total == 0
    first, second, third = applied.diagnosis().splitlines()
    assert first.startswith("pass fuse: no match; nearest at ")
    assert f"{matched} pattern ops match" in first
    assert f"`{source}` (fuse.py:" in second
    assert f"graph: {node}" in second
    assert third.startswith("  expected ")
    assert difference in third


def test_a_function_of_another_kind_with_the_same_name():
    def pattern(x):
        return torch.max_pool2d(x, 2) + 1

    _, applied = rewritten(lambda x: (F.max_pool2d(x, 2) + 1,), rule(pattern, pattern, "fuse"))
    assert "torch.nn.functional.max_pool2d, another spelling of the same; write it" in applied.diagnosis()


def test_an_intermediate_used_outside():
    def f(x, y):
        total = x + y
        return (torch.relu(total), total * 2)

    def pattern(x, y):
        return torch.relu(x + y)

    line = pattern.__code__.co_firstlineno + 1
    _, applied = rewritten(f, rule(pattern, pattern, "fuse"))
    assert applied.diagnosis().splitlines()[1:] == [
        f"  pattern: `x + y` (fuse.py:{line}); graph: add = operator.add(x, y)",
        "  expected add to be used inside the match only, found a use outside by mul = operator.mul(add, 2); "
        "return it from the pattern too",
    ]


def test_a_node_that_an_earlier_rule_took():
    def f(x, y):
        return (torch.relu(torch.sin(x) + y),)

    first = rule(lambda x: torch.sin(x), torch.sin, "first")
    _, applied = rewritten(f, first, rule(lambda x, y: torch.sin(x) + y, torch.add, "second"))
    assert applied.matches == {"first": 1, "second": 0}
    assert "expected torch.sin, found the result of pass first, which came first" in applied.diagnosis()


def test_the_best_place_counts_and_not_the_last():
    def f(x, y):
        a = torch.relu(torch.exp(torch.cos(torch.sin(x))))
        return (a * torch.relu(y), torch.relu(x + y))

    def pattern(x):
        return torch.relu(torch.exp(torch.tan(torch.sin(x))))

    text = rewritten(f, rule(pattern, pattern))[1].diagnosis()
    assert "2 of 4 pattern ops match" in text
    assert "expected torch.tan, found torch.cos" in text


def test_at_most_ten_lines():
    rules = [rule(lambda x: torch.tan(x) * 2, torch.tan, f"rule{n}") for n in range(9)]
    _, applied = rewritten(block, *rules)
    lines = applied.diagnosis().splitlines()
    assert len(lines) == 10
    assert lines[-1] == "no match either: rule3, rule4, rule5, rule6, rule7, rule8"


def test_nothing_to_match_against():
    _, applied = rewritten(lambda x: (x,), rule(lambda x: torch.sin(x), torch.sin))
    assert "no call that is not a replacement's" in applied.diagnosis()
    _, applied = rewritten(lambda x: (torch.sin(x) + 1,), rule(lambda x: torch.tanh(x), torch.sin))
    assert "expected torch.tanh, found calls of torch.sin, operator.add" in applied.diagnosis()
    assert not rewritten(lambda x: (torch.sin(x),), rule(lambda x: torch.sin(x), torch.sin))[1].diagnosis()
