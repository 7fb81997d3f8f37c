"""A value that is a list in one call and a tensor in another: where the list may meet a tensor, Python reads it."""

import pytest

from tests.passbench.policy.test_policy import HEAD, IMPORTS, WRAPPER, check

OWN = """
import itertools
from dataclasses import dataclass

def times(a, b):
    return a * b

def same(a, b):
    return a == b

def rest(a, b):
    return a % b

def place(a, b):
    return a.index(b)

def held(a, b):
    return BODY

def each(a, by):
    return [one * by for one in a] if isinstance(a, (list, tuple)) else a * by

def swapped(parts, last):
    return last, torch.stack(parts)

def many(a, by, several=False):
    return [one * by for one in a] if several else a * by

def stacked(parts, by):
    parts = torch.stack(parts)
    return parts * by

def apply(function, *given):
    return function(*given)

class Holder:
    field = held

@dataclass
class Given:
    made: object = held

@dataclass
class Plan:
    value: object = None
    scale: float = 0.5
    shape: tuple = (1, 2)

    def keep(self, value):
        self.value = value

    def product(self, a, b):
        return a * b

    @staticmethod
    def twice(a, b):
        return a * b

ROW = Plan()
ROWS = [Plan()]
OTHERS = [Plan()]
"""
TWICE = """
times(x, x), times([1], t)
times(b=x, a=x), times(b=t, a="ab")
same(x, x), same([x], [t])
same(x, x), same([1], [t])
same([x], x), same(x, [x])
rest(x, x), rest("%d", t)
place(x, x), place((1, 2), t)
ROW.product(x, x), ROW.product([1], t)
Plan.twice(x, x), Plan.twice([1], t)
functools.reduce(operator.mul, [[1], t])
functools.reduce(operator.mul, [t], [1])
functools.reduce(lambda a, b: a * b, [[1], t])
functools.reduce(lambda a, b: a * b, [t], [1])
functools.reduce(times, [[1], t])
functools.reduce(lambda a, b: a == b, [[x], [t]])
list(itertools.accumulate([[1], t], operator.mul))
list(itertools.accumulate([t], operator.mul, initial=[1]))
list(itertools.accumulate([[1], t], lambda a, b: a * b))
list(itertools.accumulate([t], times, initial=[1]))
list(map(times, [[1], x], [t, x]))
[[x]][0] == [[t]][0]
[[1, x]][0] * t
[one == [[t]][0] for one in [[x], [t]]]
x.chunk(2) * t
torch.split(x, 2) == out.unbind(0)
""".strip().splitlines()
LINES = """
kept = {'a': [x], 'b': [t]}; z = kept.get('a') == kept.get('b')
kept = {'a': [x], 'b': [t]}; z = kept.pop('a') == kept.pop('b')
kept = [[x], [t]]; z = kept.pop() == kept.pop(-1)
parts = x.chunk(2); z = parts * t
ROWS[0].keep(x); OTHERS[0].keep(t); z = ROWS[0] == OTHERS[0]
unsqueeze = torch.unsqueeze; z = unsqueeze(x, t)
sizes = [n]; sizes.append(t); z = torch.empty(sizes)
sizes = [n]; sizes += [t]; z = torch.empty(sizes)
sizes = [n, t]; z = torch.empty(sizes)
""".strip().splitlines()
HELD = {
    "a * b": "[1], t",
    "a % b": "'%d', t",
    "a == b": "[x], [t]",
    "a.index(b)": "(1, 2), t",
    "torch.unsqueeze(a, b)": "x, t",
}
HONEST = """
z = times(x, t); z = times(x, 0.5); z = times(2, n); z = times(0.5, t); z = x * ROW.scale * t
z = same(x.shape, y.shape); z = same(x.dtype, y.dtype); z = same(x.device, y.device); z = same(x, t)
z = rest(n, 256); z = rest(x, t); z = place((1, 2), n); z = f"{x.shape}" + "%d" % n
z = (1,) * (x.ndim - 1); z = [1] * x.dim(); z = x.shape == y.shape; z = x == t
z = each([x, out], t); z = each(x, t); z = many([x, out], t, True); z = many(x, t)
parts = x.chunk(2); z = parts[0] * t; a, b = parts; z = a * b; z = torch.max(x) * t; z = torch.cat(x.split(1)) == t
z = x; z = z * t * z; z = stacked([x, out], t); z = apply(times, x, t); z = apply(torch.mul, x, t)
z = Holder.field(x, t); z = Given().made(x, 2); z = ROW.product(x, t); z = ROW.shape * 2
parts = [x, out]; parts = torch.stack(parts); z = parts * t; more = [t, t]; more = torch.stack(more); z = parts == more
sizes = list(x.shape); sizes.append(n); z = torch.empty(sizes) * t; flat = torch.unsqueeze; z = flat(x, 0)
kept = {'x': x, 'shape': (1, 2), 't': t}; z = kept['x'] * kept['t']; z = kept.get('x') * t; z = kept['shape'] * 2
pairs = [(x, t), (out, t)]; a, b = pairs.pop(); z = a * b; z = pairs[0][0] * pairs[0][1]
z = functools.reduce(operator.mul, x.shape, 1) * t; z = functools.reduce(lambda a, b: a * b, [x, out, t])
z = functools.reduce(lambda a, pair: a * pair[1] + pair[0], [(x, 1), (out, 2)], out)
z = list(map(lambda pair: pair[0] * pair[1], [(x, t), (out, t)])); z = list(map(times, [x, out], [t, t]))
late = [x, t]; late, last = swapped(late, t); z = late * t
pairs = [(x, t)]; pairs = [a + b for a, b in pairs]; z = [one * t for one in pairs]; z = pairs[0] * t
rows = [[x, t]]; rows = [torch.cat(rows[0])]; z = functools.reduce(lambda a, b: a * b, rows)
z = list(map(times, rows, [t]))
z = list(itertools.accumulate([x, out], operator.mul)); z = list(itertools.accumulate(x.shape, operator.mul))
""".strip().splitlines()


def found(tmp_path, body: str, held: str = "a * b") -> list[str]:
    lines = ["t = x.sum().long()", *body.split("; ")]
    return [f.rule for f in check(tmp_path, _text("\n    ".join(lines), held))]


def _text(body: str, held: str) -> str:
    return IMPORTS + HEAD + OWN.replace("BODY", held) + WRAPPER.format(body=body)


@pytest.mark.parametrize("body", [f"z = {one}" for one in TWICE] + LINES)
def test_a_list_meets_a_tensor(tmp_path, body):
    assert found(tmp_path, body) == ["host_read"]


@pytest.mark.parametrize("held", HELD)
def test_a_field_holds_a_function_that_gets_a_list(tmp_path, held):
    assert found(tmp_path, f"z = Holder.field({HELD[held]})", held) == ["host_read"]
    assert found(tmp_path, f"z = Given().made({HELD[held]})", held) == ["host_read"]


def test_what_is_surely_no_list_meets_a_tensor(tmp_path):
    assert found(tmp_path, "; ".join(HONEST)) == []


def test_a_long_function_is_searched_once_for_what_it_asks(tmp_path):
    long = (
        "def long(a, by):\n    if isinstance(a, list):\n        return a\n"
        + 300 * "    c = a * by\n"
        + "    return c\n"
    )
    body = "t = x.sum().long()\n    z = long(x, t)\n    z = long([x], t)"
    assert check(tmp_path, HEAD + long + WRAPPER.format(body=body)) == []
