"""Helpers that compute, of numbers in one call and of tensors in another, by `operator` in `reduce`, through fields and
class methods; and what would hide behind each of them."""

import pytest

from tests.passbench.policy.test_policy import IMPORTS, check, in_wrapper

HELPERS = "def times(a, b=2):\n    return a * b\n\ndef prod(items):\n    found = 1\n    for one in items:\n"
HELPERS += "        found *= one\n    return found\n\ndef kept(a):\n    return KEPT if a > 0 else a\n\n"
HELPERS += "KEPT = 1\n\ndef most(a, b):\n    return max(a, b)\n"
PLANS = "class Plan:\n    def __init__(self, n):\n        self.n = n\n\n    def run(self, t):\n        return {}\n\n"
PLANS += "PLANS = {{}}\n\ndef plan_of(shape):\n    if shape not in PLANS:\n"
PLANS += "        PLANS[shape] = Plan(functools.reduce({}, shape, 1))\n    return PLANS[shape]\n"
OPS = "class Ops:\n    BLOCK = 16\n\n    @classmethod\n    def numel(cls, shape):\n"
OPS += "        return len(shape) * cls.BLOCK\n\n"
OPS += "    {}\n    def add(cls, a, b):\n        return torch.add({}, b)\n"
PICK = "from dataclasses import dataclass, field, replace\n@dataclass\nclass Pick:\n    table: object{}\n"
PICK += "    ids: object = None\n\n"
PICK += "    def rows(self):\n        {}return self.table[self.ids]\n"
MADE = "class Pick:\n    def __init__(self, table, ids):\n        self.table, self.ids = table, ids\n\n"
MADE += "    def rows(self):\n        return self.table[self.ids]\n"
PAIR = "from typing import NamedTuple\nclass Pair(NamedTuple):\n    cos: torch.Tensor\n    {}: torch.Tensor\n\n"
PAIR += "def of_pair(pair, t):\n    return {}\n"
PICKS = "def pick(table, ids):\n    return table[ids]\n"
BOTH = "rows, ids = x.contiguous(), y.contiguous()\n"
ACCEPTED = {
    "a product of both": ("a = times(x, y)\nif times(n) > 4 and prod(x.shape) > 1:\n    a = prod((x, y))", HELPERS),
    "a plan by a product": ("z = plan_of(x.shape).run(x)", PLANS.format("t * self.n", "operator.mul")),
    "class methods": ("z = Ops.add(x, y)\nif Ops.numel(x.shape) > 1:\n    n = 1", OPS.format("@classmethod", "a")),
    "fields of tensors": (BOTH + "z = Pick(rows, ids).rows()", PICK.format("", "")),
    "fields of tensors by name": (BOTH + "z = Pick(ids=ids, table=rows).rows()", PICK.format("", "")),
    "fields of tensors that a method sets": (BOTH + "z = Pick(rows, ids).rows()", MADE),
    "tensors by name": (BOTH + "z = [pick(rows, ids), pick(**{'ids': ids}, table=rows)]", PICKS),
    "numbers and a tensor by name and behind a star": (
        "o, shape = {'b': 3}, ((1, 2), x)\nz = [times(x, **o), prod(*[x.shape]), first(*shape)]",
        HELPERS + "def first(sizes, t):\n    return t * sizes[0]\n",
    ),
    "a pair with names of tensors'": ("z = of_pair(Pair(y, y), x)", PAIR.format("sin", "pair.cos * t + pair.sin")),
}
REFUSED = {
    "a product of tensors": ("host_read", "if prod((x, x.sum())) > 1:\n    n = 1", HELPERS),
    "a product with one tensor": ("host_read", "a = times(n)\nif times(n, x.sum()) > 1:\n    n = 1", HELPERS),
    "a product of a list of tensors": ("host_read", "a = prod([2])\nif prod([x.sum()]):\n    n = 1", HELPERS),
    "a global that is a tensor": (
        "host_read",
        "a = kept(2)\nif kept(n) > 1:\n    n = 1",
        HELPERS.replace("KEPT = 1", "KEPT = torch.ones(())"),
    ),
    "a tensor by default": (
        "host_read",
        "if times(n) > 1:\n    n = 1",
        "ONE = torch.ones(())\n" + HELPERS.replace("b=2", "b=ONE"),
    ),
    "the larger one of tensors": ("host_read", "a = most(n, 2)\na = most(x.sum(), y.sum())", HELPERS),
    "reduced tensors": ("host_read", "if functools.reduce(operator.mul, (x, y.sum())) > 1:\n    n = 1", ""),
    "reduced lists of functions": (
        "host_read",
        "z = functools.reduce(operator.add, [[hidden], [hidden]])[0](x)",
        "def hidden(t):\n    return float(t)\n",
    ),
    "a plan by a function that reads": (
        "host_read", "z = plan_of(x.shape).run(x)", PLANS.format("float(t)", "operator.mul"),
    ),
    "a class method that hands its class on": (
        "rebinding", "z = Ops.add(x, y)", OPS.format("@classmethod", "cls"),
    ),
    "a class that is handed in": ("rebinding", "z = Ops.add(Ops, x, y)", OPS.format("@staticmethod", "cls")),
    "a list in one of the fields": (
        "host_read", BOTH + "z = [Pick(rows, ids).rows(), Pick([1, 2], ids).rows()]", PICK.format("", ""),
    ),
    "a list that a method sets": ("host_read", BOTH + "z = [Pick(rows, ids).rows(), Pick([1, 2], ids).rows()]", MADE),
    "a list by default": ("host_read", BOTH + "z = [Pick(rows), Pick(ids=ids).rows()]", PICK.format(" = (1, 2)", "")),
    "a list that is made": (
        "host_read", BOTH + "z = [Pick(rows), Pick(ids=ids).rows()]", PICK.format(" = field(default_factory=list)", ""),
    ),
    "a field that becomes a list": (
        "host_read", BOTH + "z = Pick(2, ids).rows()", PICK.format("", "self.table *= [1]\n        "),
    ),
    "a field that is replaced": (
        "host_read", BOTH + "z = replace(Pick(rows, ids), table=[1]).rows()", PICK.format("", ""),
    ),
    "a field behind a star": ("host_read", BOTH + "z = Pick(*([1, 2], ids)).rows()", PICK.format("", "")),
    "a list by name": ("host_read", BOTH + "z = [pick(rows, ids), pick(ids=ids, **{'table': [1]})]", PICKS),
    "a list of a dict": ("host_read", "o = {'a': [1]}\nz = times(b=x.sum(), **o)", HELPERS),
    "a list behind a star": ("host_read", "o = ([1], x.sum())\nz = times(*o)", HELPERS),
    "the text of a tensor's method": (
        "forbidden_name", "z = of_pair(Pair(y, y), x)", PAIR.format("sin", "f'{pair.cos}'"),
    ),
    "a pair with a method that takes an index": (
        "forbidden_attribute", "z = of_pair(Pair(y, y), x)", PAIR.format("roll", "pair.roll"),
    ),
    "a pair with a method that reads": (
        "forbidden_attribute", "z = of_pair(Pair(y, y), x)", PAIR.format("item", "pair.item * t"),
    ),
}  # fmt: skip


def found(tmp_path, body, more):
    return [f.rule for f in check(tmp_path, IMPORTS + in_wrapper(body) + "\n" + more)]


@pytest.mark.parametrize("what", ACCEPTED)
def test_helpers_compute(tmp_path, what):
    assert found(tmp_path, *ACCEPTED[what]) == []


@pytest.mark.parametrize("what", REFUSED)
def test_what_would_hide_behind_it_is_refused(tmp_path, what):
    rule, body, more = REFUSED[what]
    assert rule in found(tmp_path, body, more)
