"""What may be one thing or another: an input beside a tensor of the pass's own is none of the pass's own."""

import itertools

import pytest

from passbench.policy.scopes import ValueKind, joined
from tests.passbench.policy.test_policy import check, in_wrapper

FUNCTIONS = """
import dataclasses

def either(a, b):
    if b > 2:
        return a
    return torch.zeros(4)

def first(a):
    return a

@dataclasses.dataclass
class Pair:
    a: object
    b: object = None

class Names:
    item = None
    untyped_storage = None
"""
WRITTEN = {
    "if": "z = y if n > 2 else torch.zeros(4)\nz.zero_()",
    "a block": "z = torch.zeros(4)\nif n > 2:\n    z = y\nz.zero_()",
    "or": "z = y or torch.zeros(4)\nz.zero_()",
    "a loop": "for z in (y, torch.zeros(4)):\n    z.zero_()",
    "pairs": "for z, i in ((y, 1), (torch.zeros(4), 2)):\n    z.zero_()",
    "a function": "either(y, k).zero_()",
    "a parameter": "first(y)\nz = first(torch.zeros(4)).zero_()",
    "fields": "z = Pair(y, torch.zeros(4)).a\nz.zero_()",
    "fields by name": "z = Pair(a=y).a\nz = Pair(a=torch.zeros(4)).a\nz.zero_()",
    "a list or a tensor": "z = [x, x] if n > 2 else torch.zeros(4)\nz[0].zero_()",
    "a variable that was a list": "z = [x, x]\nz = torch.stack(z)\nz[0].zero_()",
    "a list or an input": "z = [x, x] if n > 2 else y\nz.zero_()",
    "an output of an operator": "z = y if n > 2 else torch.zeros(4)\ntorch.add(x, x, out=z)",
    "a list or a tensor for outputs": "z = [x] if n > 2 else torch.zeros(4)\ntorch.add(x, x, out=z)",
    "a walrus": "z = torch.zeros(4)\nif (z := y) is not None:\n    z.zero_()",
}  # fmt: skip
READ = {
    "keys of a table": "z = dict(zip([x], [1]))",
    "keys that are written out": "z = dict([(x, 1), (out, 2)])",
    "a method of what may be a function": "z = y if n > 2 else first\nw = z.item()",
    "a method that is read off": "z = y if n > 2 else first\nw = z.untyped_storage\nv = w()",
}
HONEST = {
    "one's own, either way": "z = torch.zeros(4) if n > 2 else torch.ones(4)\nz.zero_()\nz[1:].fill_(2)",
    "a number or one's own": "z = 0\nfor i in range(2):\n    z = z + x * i\nz.mul_(2)",
    "a list that becomes a tensor": "z = [x, x]\nz = torch.stack(z)\nz.mul_(2)\nz.view(-1).mul_(2)",
    "a table by name": "z = dict(zip(['a', 'b'], [x, out]))['a']",
    "nothing or one's own": "z = None\nif n > 2:\n    z = torch.zeros(4)\nif z is not None:\n    z.zero_()",
}


def rules(tmp_path, body):
    return [f.rule for f in check(tmp_path, FUNCTIONS + in_wrapper(body))]


@pytest.mark.parametrize("what", WRITTEN)
def test_what_may_be_an_input_is_not_written(tmp_path, what):
    assert "in_place" in rules(tmp_path, WRITTEN[what])


@pytest.mark.parametrize("what", READ)
def test_it_is_not_read(tmp_path, what):
    assert {*rules(tmp_path, READ[what])} & {"host_read", "forbidden_attribute", "tensor_method"}


@pytest.mark.parametrize("what", HONEST)
def test_what_is_ones_own_is_written(tmp_path, what):
    assert rules(tmp_path, HONEST[what]) == []


def test_the_order_in_which_kinds_are_joined_adds_no_right_to_write():
    for kinds in itertools.product(ValueKind, repeat=3):
        at_once, one_by_one = joined(kinds), joined((joined(kinds[:2]), kinds[2]))
        assert at_once <= ValueKind.TENSOR and one_by_one >= max(kinds)
        if ValueKind.EITHER in kinds:
            assert not at_once.is_made and not one_by_one.is_made
