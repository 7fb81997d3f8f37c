"""What a class of the pass holds: what class methods make, and what names mean in its body."""

import pytest

from tests.passbench.policy.test_policy import check, in_wrapper

IMPORTS = "import dataclasses\nimport enum\nimport typing\n"
OF = "    @classmethod\n    def of(cls, a):\n        return cls({})\n"
DATA = "@dataclasses.dataclass\nclass Kept:\n    a: typing.Any\n" + OF
READ = "host_read"
LARGER = "@dataclasses.dataclass\nclass Larger(Kept):\n    b: typing.Any = 1\n"
OTHERWISE = {
    "a tensor": (DATA.format("a[0]"), "math.floor(Kept.of(x).a)", READ),
    "a field of a derived class": (DATA.format("1, a[0]") + LARGER, "math.floor(Larger.of(x).b)", READ),
    "a function by default": (
        "def same(a):\n    return a\n" + DATA.format("1").replace("typing.Any", "typing.Any = same"),
        "len(str(Kept.of(x)))",
        "forbidden_name",
    ),
    "an iterator": (DATA.format("iter([1])"), "len(str(Kept.of(x)))", "forbidden_name"),
    "an iterator without a class method": (DATA.format("1"), "len(str(Kept(iter([1]))))", "forbidden_name"),
    "a member that is looked up": (
        "class One(enum.Enum):\n    A = 1\n" + OF.format("a.sum()"),
        "One.of(x) is One.A",
        READ,
    ),
    "a name that a function binds": (
        "def put(a):\n    global w\n    w = a\nBOUND = put([])\n"
        "class Kept:\n    w = 1\n    a = [w for _ in range(2)]\n",
        "math.floor(Kept.a[0][0])",
        "rebinding",
    ),
    "a length": (DATA.format("a") + "    def __len__(self):\n        return self.a[0]\n", "len(Kept.of(x))", READ),
    "an error": ("class Wrong(ValueError):\n" + OF.format("a[0]"), "Wrong.of(x)", READ),
}  # fmt: skip


def found(tmp_path, classes, value):
    return [f.rule for f in check(tmp_path, IMPORTS + in_wrapper(f"z = {value}") + "\n" + classes)]


@pytest.mark.parametrize("what", OTHERWISE)
def test_what_instances_hold_is_known(tmp_path, what):
    classes, value, rule = OTHERWISE[what]
    assert rule in found(tmp_path, classes, value)


def test_numbers_stay_numbers(tmp_path):
    assert (
        found(tmp_path, DATA.format("a.shape[0]") + LARGER, "math.floor(Larger.of(x).b) + len(str(Kept.of(x)))") == []
    )


def test_defaults_of_methods_are_the_constants_of_their_class(tmp_path):
    classes = "class Sizes:\n    WARP = 32\n    @staticmethod\n    def of(n, size=WARP):\n        return n // size\n"
    assert found(tmp_path, classes, "Sizes.of(n)") == []
    assert "host_read" in found(tmp_path, classes, "Sizes.of(x[0]) and 1")


REGISTER = """
KEPT = {}

def register(name):
    def keep(cls):
        KEPT[name] = cls()
        return cls

    return keep

class Other:
    def of(self, n):
        return 0

"""
OWN = "class Own:\n    def of(self, n):\n        return n // 2\n"
OWN += "    def __contains__(self, n):\n        return n in KEPT\n"


def test_a_decorator_of_a_class_may_keep_it(tmp_path):
    value = "len(range(KEPT['a'].of(n))) if n not in Own() else 1"
    assert found(tmp_path, REGISTER + '@register("a")\n' + OWN, value) == []
    assert found(tmp_path, REGISTER + "@register\n" + OWN, value) == ["decorator"]  # it is `keep` then
    assert READ in found(tmp_path, REGISTER + '@register("a")\n' + OWN, "math.floor(KEPT['a'].of(x))")


OTHER = {
    "another class": "def keep(cls):\n    return Other\n",
    "perhaps another": "def keep(cls):\n    if KEPT:\n        return Other\n    return cls\n",
    "another in the end": "def keep(cls):\n    for cls in (Other,):\n        pass\n    return cls\n",
    "another by a function": (
        "def keep(cls):\n    def put():\n        nonlocal cls\n        cls = Other\n    put()\n    return cls\n"
    ),
    "a generator": "def keep(cls):\n    yield\n    return cls\n",
    "a generator by a default": "def keep(cls):\n    def put(n=(yield)):\n        pass\n    return cls\n",
    "what a cache keeps": "import functools\n@functools.lru_cache\ndef keep(cls):\n    return cls\n",
}


@pytest.mark.parametrize("what", OTHER)
def test_it_returns_the_class_that_it_gets(tmp_path, what):
    assert "decorator" in found(tmp_path, REGISTER + OTHER[what] + "@keep\n" + OWN, "Own().of(n)")


ASKED = "BOX = {}\nclass Box:\n    def __init__(self, t=0):\n        self.t = t\n    def __contains__(self, n):\n"
ASKS = {
    "an input": (ASKED + "        BOX[0] = float(n)\n        return True\n", "x in Box()"),
    "an item of a list": (
        ASKED + "        BOX[0] = float(n)\n        return True\n",
        "[1 for k in [x] if k not in Box()]",
    ),
    "a tensor in answer": (ASKED + "        return self.t\n", "1 in Box(x)"),
    "a function": (ASKED + "        return n(self.t)\ndef reads(t):\n    return float(t) > 0\n", "reads in Box(x)"),
}


@pytest.mark.parametrize("what", ASKS)
def test_what_is_asked_for_is_given_to_the_class(tmp_path, what):
    assert READ in found(tmp_path, *ASKS[what])


def test_a_length_may_be_a_size(tmp_path):
    classes = DATA.format("a") + "    def __len__(self):\n        return self.a.shape[0]\n"
    assert found(tmp_path, classes, "len(Kept.of(x))") == []


SETS = "class Plan:\n    def __init__(self, n):\n        self.width = n\n"
SETS += "    def widen(self, k):\n        self.width = k\n        return k\n"
KEEPS = "PLANS = {}\ndef register(name):\n    def keep(own):\n        PLANS[name] = own\n        return own\n"
KEEPS += "    return keep\n"
WIDENED = "z = PLANS['a'](n).widen(k)"
OF_CLASSES = {
    "registered by a decorator": (WIDENED, KEEPS + "@register('a')\n" + SETS, []),
    "in a table": (WIDENED, SETS + "PLANS = {'a': Plan}\n", []),
    "read off a table": ("z = PLANS['a'].widen(x, k)", KEEPS + "@register('a')\n" + SETS, ["rebinding"]),
    "read off by the decorator": (
        WIDENED,
        KEEPS.replace("= own", "= own.widen(PLANS, 1) or own") + "@register('a')\n" + SETS,
        ["rebinding"],
    ),
    "called by torch": (
        "z = torch.split(PLANS['a'], x)",
        SETS.replace("widen", "split") + "PLANS = {'a': Plan}\n",
        ["rebinding"],
    ),
}


@pytest.mark.parametrize("what", OF_CLASSES)
def test_a_class_that_is_a_value_sets_fields_of_its_instances(tmp_path, what):
    body, classes, rules = OF_CLASSES[what]
    assert [f.rule for f in check(tmp_path, in_wrapper(body) + classes)] == rules
