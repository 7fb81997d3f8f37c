"""What Python, torch and the standard library call of a pass, and what they make of the results: nothing that they
compare, count or index by is a tensor."""

import pytest

from tests.passbench.policy.test_policy import HEAD, IMPORTS, WRAPPER, check

OWN = """
import bisect
import collections
import dataclasses
import itertools

SEEN = {}
ROWS = [(1, 2), (3, 4)]

def last(*rest):
    return SEEN["sum"]

def rank(row):
    return row[0]

def ranked(by, row):
    return row[by]

LAST = last
RANK = rank
BY = {"key": last}

class Lasting:
    def last(self, *rest):
        return SEEN["sum"]

    def rank(self, row):
        return row[0]

    @staticmethod
    def second(row):
        return row[1]

    def __call__(self, *rest):
        return SEEN["sum"]

    __repr__ = lambda self: "lasting"
    __str__ = __repr__

ONE = Lasting()
ONES = {"one": ONE}
COUNTS = collections.defaultdict(lambda: 0)
SUMS = collections.defaultdict(lambda: SEEN["sum"])
CALLED = collections.defaultdict(ONE)

@dataclasses.dataclass
class Holder:
    size: int = dataclasses.field(default_factory=lambda: 3)

@dataclasses.dataclass
class Late:
    n: object = 0
    kept: list = dataclasses.field(default_factory=list)

    def keep(self, n):
        self.n = n
        self.kept.append(n)

LATE = Late()

def forwards(x, y):
    return x + y

def backwards(x, y):
    return y + x

BOTH = [forwards, backwards]
"""
PLAN = "class Plan:\n    def rows(self):\n        return float(self)\n"
KINDS = {
    "PLAN": "import typing\nPLAN = typing.Union[Plan, typing.Union[typing.Annotated[Plan, 1]]]\n",
    "PLANS": "import typing\nPLANS = typing.Annotated[Plan, 1]\n",
    "Kinds().one": "@dataclasses.dataclass\nclass Kinds:\n    one: object = dataclasses.field(default=Plan)\n",
    "KINDS['default_factory']": "KINDS = collections.defaultdict(list, default_factory=Plan)\n",
}
FAULTS = """
z = float(SUMS[0])
z = float(CALLED[0])
z = max(ROWS, key=LAST)
z = min(ROWS, key=ONE.last)
z = sorted(ROWS, key=ONE)
z = max(ROWS, **BY)
z = max(ROWS, key=functools.partial(last, 1))
ROWS.sort(key=LAST)
ROWS.sort(**BY)
z = list(filter(ONE, ROWS))
z = list(filter(lambda row: SEEN["sum"], ROWS))
z = float(list(map(ONE, ROWS))[0])
z = float(functools.reduce(LAST, ROWS))
z = float(functools.reduce(lambda a, b: SEEN["sum"], ROWS))
z = float(list(itertools.accumulate(ROWS, lambda a, b: SEEN["sum"]))[1])
z = bisect.bisect(ROWS, 1, key=last)
ROWS.sort(key=ONE.last)
ROWS.sort(key=ONES["one"].last)
z = sorted([(x.sum(), 1)], key=operator.itemgetter(0))
z = list(map(operator.getitem, [ROWS], [x.sum()]))
z = BOTH[(x.sum() > 0).long()](x, y)
z = operator.getitem(BOTH, (x.sum() > 0).long())(x, y)
z = operator.eq([x], [y])
z = operator.mod("%s", (x,))
LATE.keep(x.sum()); z = LATE == Late(1)
LATE.keep(x.sum()); z = f"{LATE}"
kind = torch.Tensor; z = float(kind.detach(x.sum()))
z = len(+collections.Counter({"a": x.sum()}))
""".strip().splitlines()
ALLOWED = """
z = max(ROWS, key=RANK)[0] % 2 + min(ROWS, key=ONE.rank)[0] % 2
z = sorted(ROWS, key=lambda row: row[1])[0][0] % 2
z = sorted(ROWS, key=functools.partial(ranked, 1))[0][0] % 2 + repr(ONE).count("a")
z = len(list(filter(lambda row: row[0] > 1, ROWS))) + list(map(ONE.rank, ROWS))[0] % 2
z = functools.reduce(lambda a, b: a * b, x.shape, 1) % 2 + functools.reduce(operator.mul, x.shape, 1) % 2
z = list(itertools.accumulate(x.shape, lambda a, b: a * b))[-1] % 2 + bisect.bisect(ROWS, 1, key=lambda r: r[0])
z = range(COUNTS[n] + Holder().size + operator.mod(n, 2) + operator.getitem(ROWS, 0)[0])
ROWS.sort(key=ONE.rank, reverse=True); ROWS.sort(key=len)
z = sorted(ROWS, key=ONES["one"].rank)[0][0] % 2; ROWS.sort(key=ONES["one"].rank)
z = max(ROWS, key=operator.itemgetter(1, 0))[0] % 2 + min([Holder()], key=operator.attrgetter("size")).size
z = sorted(ROWS, key=Lasting.second)[0][0] % 2; ROWS.sort(key=Lasting.second)
LATE.keep(n); z = LATE == Late(1) or f"{LATE}"
z = torch.where(operator.lt(x, y), operator.getitem(x, 0), y)
""".strip().splitlines()
MEMBERS = {
    "__eq__ = last": "private_name",
    "__getitem__ = lambda self, key: SEEN['sum']": "private_name",
    "__len__: object = last": "private_name",
    "def dim(self):\n        return SEEN['sum']": "host_read",
    "def __init__(self):\n        self.shape = SEEN['sum']": "host_read",
    "__hash__ = None": "",
    "def dim(self):\n        return 2": "",
}


def found(tmp_path, line: str, own: str = "") -> list[str]:
    body = 'SEEN["sum"] = x.sum()\n    ' + line
    return [f.rule for f in check(tmp_path, IMPORTS + HEAD + OWN + own + WRAPPER.format(body=body))]


@pytest.mark.parametrize("line", FAULTS)
def test_a_tensor_that_a_library_gets_back_is_read(tmp_path, line):
    assert found(tmp_path, line)[:1] == ["host_read"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_that_a_library_keeps_is_a_value(tmp_path, kind):
    assert "host_read" in found(tmp_path, f"z = {kind}.rows(x)", PLAN + KINDS[kind])


def test_numbers_that_a_library_gets_back_are_numbers(tmp_path):
    assert found(tmp_path, "\n    ".join(ALLOWED)) == []


@pytest.mark.parametrize("member", MEMBERS)
def test_members_that_others_ask_for(tmp_path, member):
    own = f"class Like:\n    n = 1\n    {member}\n\nLIKE = Like()\n"
    for called in ("torch.nn.functional.local_response_norm", "[torch.nn.functional.local_response_norm][0]"):
        rules = found(tmp_path, f"z = {called}(LIKE, 2)", own)
        assert rules[:1] == ([MEMBERS[member]] if MEMBERS[member] else [])
