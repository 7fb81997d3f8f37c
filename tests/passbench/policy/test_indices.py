"""A tensor indexes what is surely a tensor: a list, a tuple or a text would make a number of it. So does a text with
`%`."""

import pytest

from tests.passbench.policy.test_policy import HEAD, IMPORTS, WRAPPER, check

OWN = """
import itertools

def first(x, y):
    return x

def second(x, y):
    return y

def pick(a, b):
    return a[b]

def both(a, b):
    return a, b

def apply(function, *given):
    return function(*given)

class Rows:
    def pick(self, a, b):
        return a[b]

    def __call__(self, a, b):
        return a[b]

    @staticmethod
    def picked(a, b):
        return a[b]

ROWS = Rows()
"""
FAULTS = """
z = functools.reduce(lambda a, b: a[b], [ids], [first, second])(x, y)
z = functools.reduce(operator.getitem, [[1, 2], ids])
z = functools.reduce(pick, [ids], [1, 2])
z = functools.partial(lambda a, b: a[b], [x, y])(ids)
z = apply(pick, [x, y], ids) + apply(pick, x, ids)
z = list(itertools.accumulate([ids], pick, initial=[1, 2]))
z = list(itertools.accumulate([[1, 2], ids], operator.getitem))
z = list(map(pick, [[1, 2], x], [ids, ids]))
z = pick([x, y], ids) + pick(x, ids)
z = ROWS.pick([x, y], ids) + ROWS.pick(x, ids)
z = ROWS([x, y], ids) + ROWS(x, ids)
z = Rows.picked((x, y), ids) + Rows.picked(x, ids)
row = [[1, 2], ids]; a, b = row; z = a[b]
for row in [([1, 2], ids)]: z = row[0][row[1]]
z = (x if k else [x, y])[ids]
z = {0: [x, y]}.get(0)[ids]
z = ([x] + [y] * 2)[1:][ids]
parts = x.split(2); z = parts[ids]
z = torch.max(x, 0)[ids]
z = torch.nn.functional.max_pool2d(x, 2, return_indices=True)[ids]
a = x; a = [x, y]; z = a[ids]
a = both([x, y], x)[0]; z = a[ids]
z = functools.reduce(lambda a, b: a % b, [ids], "%d")
for row in [("%d", ids)]: z = row[0] % row[1]
""".strip().splitlines()
NESTED = ["z = [[x]]" + 30 * "[0]" + "[ids]", "z = {1: 2}[1]" + 20 * ".relu()[0]" + "[ids]"]
CAUGHT = "try:\n        z = functools.reduce(pick, [ids], [1])\n    except IndexError:\n        n = n + 1"
ALLOWED = """
z = pick(x, ids) + pick(a=x.view(-1), b=ids) + operator.getitem(x, ids)
z = ROWS.pick(x, ids) + ROWS(x, ids) + Rows.picked(x, ids)
a, b = x.split(2); z = a[ids] + x.unbind(0)[0][ids]
a, b = both(x, y); z = a[ids] + torch.max(x, 0)[0][ids] + x.max(0).values[ids]
a = x.to(torch.float32); a = (a * x.shape[-1] ** -0.5 + 1).float(); z = a[ids]
for t in (x, y): z = t[ids] % t
z = torch.stack([t[ids] for t in x.unbind(0)])[ids] + torch.nn.functional.softmax(x, -1)[ids]
written = torch.empty_like(x); written[ids] = y
rows = [x, y]; rows.append(z); z = rows[0][ids, ...]
z = functools.reduce(operator.getitem, ["a", "b"], {"a": {"b": 1}}) % 2
z = functools.reduce(lambda a, b: a[b], [0, 1], [[1, 2], [3, 4]]) % 2
""".strip().splitlines()


def found(tmp_path, lines: str) -> list[str]:
    body = "ids = y.long()\n    " + lines
    return [f.rule for f in check(tmp_path, IMPORTS + HEAD + OWN + WRAPPER.format(body=body))]


@pytest.mark.parametrize("line", [*FAULTS, CAUGHT])
def test_a_tensor_may_index_a_list(tmp_path, line):
    assert "host_read" in found(tmp_path, line)


@pytest.mark.parametrize("line", NESTED)
def test_an_item_of_an_item_takes_few_steps(tmp_path, line):
    assert "size" not in found(tmp_path, line)


def test_a_tensor_indexes_tensors(tmp_path):
    assert found(tmp_path, "\n    ".join(ALLOWED)) == []
