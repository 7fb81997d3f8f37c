"""What an operator writes to is seen where a name for it is put together, copied or handed on."""

import pytest

from tests.passbench.policy.test_policy import check, in_wrapper

IMPORTS = "import copy\nimport functools\nimport torch.nn.functional as F\n"
REFUSED = {
    "fills an input": ("in_place", "x.zero_()"),
    "fills a view of an input": ("in_place", "x.view(-1).fill_(2.0)"),
    "fills what may be a number": ("in_place", "y.zero_()"),
    "fills what a list holds": ("in_place", "[t.zero_() for t in [x, y]]"),
    "an element": ("in_place", "y[0] = 1"),
    "out among others": ("in_place", "torch.add(x, y, **{'o' + 'ut': x})"),
    "in place among others": ("in_place", "F.relu(x, **{'inpl' + 'ace': True})"),
    "out of an operator that is a value": ("in_place", "f = torch.add\nf(x, y, out=x)"),
    "out of an operator in a table": ("in_place", "{'a': torch.add}['a'](x, y, out=x)"),
    "out of a partial operator": ("in_place", "f = functools.partial(torch.add, x, y)\nf(out=x)"),
    "a copy that is the same memory": ("in_place", "z = copy.copy(x)\nz += 1"),
    "whether a copy is true": ("host_read", "z = 1 if copy.copy(x.sum()) else 2"),
    "a view of what may be a number": ("in_place", "y.view(-1).mul_(0.5)"),
    "an input with a plus": ("in_place", "(+x).mul_(2)"),
    "what may be a number, with a plus": ("in_place", "(+y).mul_(2)"),
    "one of two lists": ("in_place", "z = [y] + [y]\nz[0].mul_(2)"),
    "the last of two lists": ("in_place", "z = [y] + [y]\nz.pop().mul_(2)"),
    "each of two lists": ("in_place", "for z in [y] * 2:\n    z.mul_(2)"),
    "one of a sum of lists": ("in_place", "z = sum([[x]], [])\nz[0].mul_(2)"),
    "what may be a sum": ("in_place", "z = y + y\nz = y\nz.mul_(2)"),
    "what may be a number, and gets a tensor": ("in_place", "y += x"),
    "another name of what may be a number": ("in_place", "z = y\nz += x.exp()"),
    "gradients": ("tensor_method", "x.requires_grad_(True)"),
    "gradients of a function": ("forbidden_call", "torch.Tensor.requires_grad_(x)"),
}
ACCEPTED = {
    "a sum of what may be numbers": "(y + y).mul_(0.5)",
    "a variable that is such a sum": "z = y - k\nz.mul_(0.5).add_(y)\nz.view(-1).relu_()",
    "a number that gets a tensor": "total = 0\ntotal += x\ntotal += y\ntotal.mul_(2)",
    "a sum of what may be numbers that gets a tensor": "z = y + k\nz += x\nz.mul_(2)",
    "numbers that get numbers": "y += 1\nk += y",
    "what unary operators make": "(-y).mul_(2)\n(~x).zero_()",
    "sizes that are computed of what may be numbers": "m = (y + 1) * 2\nz = [0] * m\nw = 1 if m > 3 else 2",
    "fills its own": "z = torch.empty_like(x)\nz.zero_()\nz.view(-1)[:4].fill_(0.5)\nout.fill_(float('-inf'))",
    "fills its own in a list": "parts = [torch.empty_like(x).zero_() for _ in range(2)]",
    "out of an operator that is a value": "f = torch.add\nf(x, y, out=out)",
    "numbers among others": "z = torch.nn.functional.softmax(x, **{'dim': -1})",
    "a copy of a table": "z = copy.copy([1, 2])\nz += [3]",
}


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused(tmp_path, what):
    rule, body = REFUSED[what]
    assert rule in [finding.rule for finding in check(tmp_path, IMPORTS + in_wrapper(body))]


@pytest.mark.parametrize("what", ACCEPTED)
def test_it_is_allowed(tmp_path, what):
    assert check(tmp_path, IMPORTS + in_wrapper(ACCEPTED[what])) == []


WRAPS = """
def plain(f):
    {before}
    @functools.wraps({name})
    def inner(*values):
        return f(*values)
    return inner

def double(t):
    return t * 2

v = torch.relu
"""


@pytest.mark.parametrize(
    ("before", "name", "allowed"),
    [("pass", "f", True), ("pass", "double", True), ("pass", "v", False), ("f = torch.relu", "f", False),
     ("w = torch.relu", "w", False)],
)  # fmt: skip
def test_what_has_the_name_of_another_has_that_of_a_function_of_the_pass(tmp_path, before, name, allowed):
    text = IMPORTS + in_wrapper("z = plain(double)(x)") + WRAPS.format(before=before, name=name)
    assert [f.rule for f in check(tmp_path, text)] == ([] if allowed else ["decorator"])


PAIRS = """
def pair(t, k):
    {more}
    return {returned}
"""


@pytest.mark.parametrize(
    ("returned", "more", "value", "rules"),
    [
        ("t, t.shape[0]", "pass", "triton.cdiv(b, 2)", []),
        ("t, t.sum()", "pass", "triton.cdiv(b, 2)", ["host_read"]),
        ("t.shape[0], t", "pass", "1 if b else 2", ["host_read"]),
        ("t, t.shape[0]", "if k:\n        return 1, t", "triton.cdiv(b, 2)", ["host_read"]),
        ("t, t.shape[0]", "if k:\n        return [1, t.sum()]", "triton.cdiv(b, 2)", ["host_read"]),
        ("(*[t, t], )", "pass", "triton.cdiv(b, 2)", ["host_read"]),
        ("torch.empty_like(t), 1", "pass", "a.zero_()", []),
        ("t, 1", "pass", "a.zero_()", ["in_place"]),
        ("lambda: 1, 1", "pass", "str(a)", ["forbidden_name"]),
    ],
)
def test_each_item_that_a_function_returns_is_what_it_is(tmp_path, returned, more, value, rules):
    text = in_wrapper(f"a, b = pair(x, k)\nz = {value}") + PAIRS.format(more=more, returned=returned)
    assert [f.rule for f in check(tmp_path, IMPORTS + text)] == rules


@pytest.mark.parametrize(
    ("value", "rules"),
    [
        ("tuple[int, ...] | None", []),
        ("dict[str, list[int]]", []),
        ("int | torch.Tensor | None", []),
        ("dict[x.item()]", ["annotation"]),
        ("int", ["forbidden_name"]),
        ("int | x.item()", ["forbidden_name", "host_read"]),
    ],
)
def test_a_name_for_a_type_is_made_of_types(tmp_path, value, rules):
    assert [f.rule for f in check(tmp_path, IMPORTS + in_wrapper(f"z = {value}"))] == rules
