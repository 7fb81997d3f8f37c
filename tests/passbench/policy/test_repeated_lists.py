"""A list or a text times a tensor asks the tensor for its number: refused, however the list comes there. Numbers that
lie beside lists stay numbers."""

import pytest

from tests.passbench.policy.test_policy import IMPORTS, check, in_wrapper

OWN = """
import collections
import enum
from dataclasses import dataclass, field
from typing import NamedTuple

@dataclass
class Tile:
    sizes: object
    scale: float = 0.5
    more: list = field(default_factory=list)

class Plain:
    def __init__(self, rows, factor=2):
        self.rows = rows
        self.factor = factor

    def keep(self, late):
        self.late = late

class Kept:
    rows = [1]

class Pair(NamedTuple):
    name: str
    by: float

class Shape(enum.Enum):
    WIDE = (1, 2)
    HALF = 0.5

LISTS = collections.defaultdict(list)
NUMBERS = collections.defaultdict(float)
PAIRS = [(0.5, "a"), (1.0, "b")]
PLAIN = Plain([1])
TILE = Tile((1, 2))

def rows():
    yield [1]

def factors():
    yield 0.5

def times(by, t):
    return by * t

def several(*rest):
    return rest

same = lambda one: one
half_given = functools.partial(times, "ab")
KEYED = {}

"""
LISTS = """
PLAIN.rows
TILE.sizes
Tile(sizes=[n]).sizes
TILE.more
Pair('a', 1.0).name
Shape.WIDE.value
next(rows())
next([1] for _ in range(2))
min([[0]])
max([0], [n])
sum([[n]], [])
{'a': [0]}.get('a')
{'b': 1}.pop('a', [0])
LISTS['a']
collections.deque([n])
'a b'.split()
'{}'.format(n)
times.__name__
torch.broadcast_shapes(x.shape, y.shape)
several(1, 2)
same((1, 2))
same(one=[n])
""".strip().splitlines()
LOOPS = """
for r in rows(): z = r * t
for r in [[0], [1]]: z = r * t
for r in 'ab': z = r * t
for i, r in enumerate([[0]]): z = r * t
for i, r in zip([1], [[0]]): z = r * t
for i, r in {'a': [0]}.items(): z = r * t
for by, name in PAIRS: z = name * t
z = [r * t for r in map(list, [(1,)])]
z = functools.partial(times, [0])(t)
given = functools.partial(half_given, t); z = given()
PLAIN.keep([0]); z = PLAIN.late * t
KEYED[1, 2] = 1; z = [k * t for k in KEYED]
shown = '%d'; shown %= t
Kept.rows *= t
""".strip().splitlines()
NUMBERS = """
z = TILE.scale * PLAIN.factor * Pair('a', 1.0).by * Shape.HALF.value * NUMBERS['a'] * t
z = next(factors()) * max(0.5, 1.0) * max([n]) * sum([n]) * {'a': 0.5, 'b': [0]}['a'] * {'a': 0.5}.get('a', 1.0) * t
for by, name in PAIRS: z = by * t
for by in factors(): z = by * t
for part, by in zip(x.split(1), (0.5, 1.0)): z = part * by
parts = x.chunk(2); z = parts[0] * parts[1]
a = [x, x]; a = torch.stack(a); a *= t
by, name = 0.5, 'a'; z = by * t * x.shape[0]
z = times(0.5, t)
sizes = lambda one: one.shape; z = sizes(x)[0] * t * math.ceil(sizes(x)[-1] / 2)
"""


def found(tmp_path, body: str) -> list[str]:
    return [f.rule for f in check(tmp_path, IMPORTS + in_wrapper("t = x.sum()\n" + body) + OWN)]


@pytest.mark.parametrize("body", [f"z = {one} * t" for one in LISTS] + LOOPS)
def test_a_list_is_repeated_by_no_tensor(tmp_path, body):
    assert found(tmp_path, body) == ["host_read"]


def test_numbers_beside_lists_are_numbers(tmp_path):
    assert found(tmp_path, NUMBERS.strip()) == []
