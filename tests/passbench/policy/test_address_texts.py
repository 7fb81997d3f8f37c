"""What has an address in its text is not made text, by whatever way it goes; other things are."""

import pytest

from tests.passbench.policy.test_policy import HEAD, IMPORTS, WRAPPER, check

OWN = """
import collections
import dataclasses
from typing import NamedTuple

def one():
    return 1

TABLE = {0: one}
ROUTES = {}
KEYED = {}

def halved(n):
    return n // 2

def times(a, b):
    return a * b

def give():
    return TABLE[0]

def items():
    return map(int, (1, 2))

class Plain:
    def __init__(self, n):
        self.n = n

class Derived(Plain):
    pass

class LookupError:
    pass

class Missing(LookupError):
    pass

class Unfit(NotImplementedError):
    def __init__(self, what):
        super().__init__(f"no {what}")

class Keeper:
    def __init__(self):
        self.kept = {}

    def keep(self, key, one):
        self.kept[key] = one

    def listed(self):
        return f"{sorted(self.kept)}"

KEEPER = Keeper()

class Spoken(Plain):
    def __str__(self):
        return "spoken"

class Pair(NamedTuple):
    a: int
    b: object = 1

class Empty:
    pass

EMPTY = collections.defaultdict(Empty)

class Named(Plain):
    def __repr__(self):
        return f"Named({self.n})"

    def method(self):
        return self.n

def pick(a, b):
    return one

@dataclasses.dataclass
class Data:
    a: object = one

@dataclasses.dataclass(repr=False)
class Hidden:
    a: int = 1

@dataclasses.dataclass
class Filled:
    c: object = dataclasses.field(default_factory=Empty)
    d: object = 1

@dataclasses.dataclass
class Late:
    late: object = 1

    def keep(self, late):
        self.late = late
"""
REFUSED = """
t = str(TABLE[0])
t = [f"{f}" for f in TABLE.values()]
t = str({1: [one]}[1][0])
d = []; d.append(one); t = str(d)
t = "".join(map(str, [one]))
t = "%s" % one
s = "%s"; t = s % (kernel,)
t = "{}".format(TABLE)
t = str(give())
f = one if n else 1; t = repr(f)
t = max([one, kernel], key=str)
t = str(lambda: 1)
t = str(Plain(1))
p = Derived(1); t = f"{p}"
t = str(Pair(1, one))
t = str(Data())
t = str(Hidden())
t = str(i for i in (1, 2))
z = zip((1,), (2,)); t = f"{z}"
t = str([reversed((1, 2))])
t = str(items())
t = str(torch.add)
t = f"{[torch.nn.functional.relu]}"
z = items(); y = z; t = str(y)
t = str(sum([[one]], []))
z = iter((1,)) if n else 1; t = str(z)
z = n or iter((1,)); t = str(z)
(z := iter((1,))); t = str(z)
t = str(Named(1).method)
t = str(functools.reduce(pick, [1, 2]))
t = str(dataclasses.replace(Data(1), a=one))
t = str(torch.no_grad())
t = repr(Spoken(1))
t = f"{Spoken(1)!r}"
t = str([Spoken(1)])
s = Spoken(1) if n else Plain(1); t = str(s)
t = str(Missing())
t = str(EMPTY[0])
t = f"{Filled()}"
t = operator.mod("%s", Plain(1))
d = dataclasses.replace(Filled(), d=one); t = str(d.d)
d = dataclasses.replace(Filled(), **{"d": one}); t = str(d.d)
d = Late(1); d.keep(one); t = f"{d}"
KEYED[one] = 1; t = str(list(KEYED))
KEYED[n, one] = 1; t = ", ".join(f"{k}" for k in KEYED)
KEYED.setdefault(one, 1); t = f"{sorted(KEYED)}"
KEEPER.keep(one, 1); t = KEEPER.listed()
KEYED |= {one: 1}; t = str(tuple(KEYED))
t = {one, kernel}
t = set([Plain(1), Plain(2)])
"""
ALLOWED = """
sizes = [n, 2]; t = str(sizes[0])
t = "x".join(str(s) for s in reversed((n, 2)))
pairs = zip((1,), (2,)); t = "".join(f"{a}{b}" for a, b in pairs)
t = str(list(items()))
t = f"{sum(i for i in (1, 2))} {len(TABLE)}"
t = f"{Plain(3).n} {Pair(1, 2)} {Named(4)}"
t = "%d of %d" % (n, 2); m = n % 2
k = max(map(halved, x.shape)) % 4; j = functools.reduce(times, x.shape); t = f"{k}{j}"
k = sorted((1, 2), key=halved)[0] % 2; j = max(1, 2, key=halved); t = f"{k}{j}"
k = len(list(filter(halved, (1, 2)))) % 2; t = f"{k} {sum((1, 2), 3)}"
t = f"{Spoken(1)}"; spoken = Spoken(2); t = str(spoken) + f"{spoken!s}" + "{}".format(spoken)
t = f"{Late(1)}"; raise Unfit("route")
KEEPER.keep("a", one); t = KEEPER.listed() + ", ".join(k for k in KEEPER.kept)
ROUTES["b"] = one; ROUTES.setdefault(f"{n}", one); t = f"{sorted(ROUTES)} {list(ROUTES.keys())}" + ", ".join(ROUTES)
names = {torch.float16: "half"}; t = str(names[torch.float16])
"""


def found(tmp_path, line: str) -> list:
    return check(tmp_path, IMPORTS + HEAD + OWN + WRAPPER.format(body=line.replace("; ", "\n    ")))


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_no_text_and_no_order_has_addresses(tmp_path, line):
    (finding, *_) = found(tmp_path, line)
    assert finding.rule == "forbidden_name", finding
    assert "address" in finding.message, finding


def test_an_iterator_is_followed_through_any_number_of_functions(tmp_path):
    """Each is defined behind the one that calls it."""
    calls = [f"def give_{n}():\n    return give_{n + 1}()\n" for n in range(6)]
    text = "def show():\n    return str(give_0())\n" + "".join(calls) + "def give_6():\n    return map(int, (1, 2))\n"
    (finding,) = check(tmp_path, HEAD + text + WRAPPER.format(body="t = show()"))
    assert finding.rule == "forbidden_name" and "address" in finding.message


def test_a_function_is_put_into_a_list_by_its_first_name_alone(tmp_path):
    put = "def one():\n    return 1\n\ndef put(target):\n    target.append(one)\n"
    (finding,) = check(tmp_path, HEAD + put + WRAPPER.format(body="d = []\n    put(d)"))
    assert finding.rule == "container" and "functions into a list" in finding.message


@pytest.mark.parametrize(
    "value",
    [
        "functools.reduce(f, [1, 2])",
        "next(map(f, [1]))",
        "list(itertools.accumulate([1, 2], f))[1]",
        "collections.defaultdict(f)[0]",
        "max((0, 1), key=f)",
        "sorted((0, 1), key=f)[0]",
        "len(list(filter(f, (0, 1))))",
    ],
)
def test_what_a_function_returns_that_a_library_calls_may_be_a_tensor(tmp_path, value):
    text = "import collections\nimport itertools\n" + IMPORTS + HEAD
    body = f"z = x.sum()\n    def f(a=0, b=0):\n        return z\n    k = float({value})"
    findings = check(tmp_path, text + WRAPPER.format(body=body))
    assert [f.rule for f in findings] == ["host_read"], findings


def test_other_texts_are_allowed(tmp_path):
    assert found(tmp_path, ALLOWED.strip().replace("\n", "; ")) == []
