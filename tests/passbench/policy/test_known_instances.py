"""Members whose names objects of libraries have, too, read off instances of the pass; fields of classes that class
methods set; and lists that methods return."""

import pytest

from tests.passbench.policy.test_policy import check, in_wrapper

IMPORTS = """
import bisect
import contextlib
import functools
import logging
import typing
from passbench.launch import Launch

def half(t):
    return t // 2

"""
OPS = """
class Op:
    SIZES = (1, 2)

    def __init__(self, fn=None):
        self.fn = fn

    def run(self, x, y):
        return torch.add(x, y)

class Wider(Op):
    def run(self, x, y):
        return torch.mul(x, y)

OPS = [Op(), Wider()]

def pick(n):
    return next(op for op in OPS if n > 0)
"""
ONCE = """
class Once:
    one = None
    made = 0

    def __init__(self):
        self.blocks = {}

    @classmethod
    def get(cls):
        if cls.one is None:
            cls.one = cls()
            cls.made += 1
        return cls.one

    def block(self, n):
        return self.blocks.setdefault(n, 256 if n > 4096 else 64)
"""
PRIVATE = "class Sizes:\n    def __init__(self):\n        self._values = [1]\n    def of(self, n):\n"
PRIVATE += "        return n * self._values[0]\n"
ROWS = """
class Rows:
    def __init__(self):
        self.values = []

    def add(self, limit, block):
        self.values.append((limit, block))
        return self

    def find(self, n):
        return next((block for limit, block in self.values if n <= limit), 64)

    @property
    def count(self):
        return len(self.values)

class Tuned:
    def __init__(self):
        self.rows = Rows().add(4096, 128)

ROWS: Rows = Rows().add(4096, 128).add(1 << 20, 256)
"""
SPLIT = """
KEPT = {}
class Op:
    def split(self, t, dim):
        KEPT[0] = float(t)
        return [t]
"""
ACCEPTED = {
    "methods that lists and tensors have": ("z = range(ROWS.find(n) * ROWS.count)", ROWS),
    "a field that is given an instance once": ("z = range([Tuned()][0].rows.add(n, 64).find(n))", ROWS),
    "methods of tensors": (
        "z = range(Op().names()) if n else Op().relu(x) + 1",
        "class Op:\n    def names(self):\n        return 2\n    def relu(self, t):\n        return torch.relu(t)\n",
    ),
    "fields with names of what dicts and lists do": (
        "z = range(Op().of(n))",
        "class Op:\n    def __init__(self):\n        self.items = {}\n        self.index = 0\n    def of(self, n):\n"
        "        for k, v in self.items.items():\n            n += k * v\n        return n + [1].index(1)\n",
    ),
    "methods that call each other": (
        "z = range(KEPT[KEPT.pick()] + n)\nw = torch.empty(KEPT['a'])",
        "class Kept:\n    def __init__(self, **sizes):\n        self.sizes = sizes\n"
        "    def __getitem__(self, name):\n        return self.sizes[name]\n"
        "    def names(self):\n        return sorted(self.sizes)\n"
        "    def pick(self):\n        return self.names()[0]\nKEPT = Kept(a=64, b=128)\n",
    ),
    "a method of a class": ("z = Op.add(x)", "class Op:\n    @staticmethod\n    def add(t):\n        return t + 1\n"),
    "a method of tensors that torch is not given": ("z = Op().split(n, 0)", SPLIT),
    "a memo with a length": (
        "z = range(MEMO.of((n, n), lambda key: Shape(*key)).rows)",
        "class Shape:\n    def __init__(self, rows, cols):\n        self.rows = rows\n"
        "class Memo:\n    def __init__(self):\n        self.kept = {}\n    def __len__(self):\n"
        "        return len(self.kept)\n    def of(self, key, make):\n        self.kept[key] = make(key)\n"
        "        return self.kept[key]\nMEMO = Memo()\n",
    ),
    "a method of an item": ("z = [op.run(x, y) for op in OPS]", OPS),
    "a method of what a function returns": ("z = pick(n).run(x, y)", OPS),
    "a field of an item": ("z = range([Op(half)][0].fn(n))", OPS),
    "a field of a named tuple": (
        "z = range(RULES[0].fn(n))",
        "class Rule(typing.NamedTuple):\n    fn: object\n    size: int\nRULES = [Rule(half, 1)]\n",
    ),
    "what a method registers": (
        "z = range(RULES.find(n)(n))",
        "class Rules:\n    def __init__(self):\n        self.kept = []\n    def register(self, size):\n"
        "        def keep(f):\n            self.kept.append((size, f))\n"
        "            self.kept.sort(key=lambda kept: -kept[0])\n            return f\n        return keep\n"
        "    def find(self, n):\n        return next(f for size, f in self.kept if n > size)\n"
        "RULES = Rules()\n@RULES.register(1)\ndef third(t):\n    return t // 3\n",
    ),
    "a private name of tensors": ("z = range(Sizes().of(n))", PRIVATE),
    "a place among sizes": ("z = (64, 128)[bisect.bisect_left([1, 2], n)]", ""),
    "a field that a class method sets": ("z = range(Once.get().block(n))", ONCE),
    "a field that a function sets": (
        "set_block(n)\nz = range(Sizes.block)",
        "class Sizes:\n    block = 1\n\ndef set_block(n):\n    Sizes.block = n // 2\n",
    ),
}
SETS = "class Sizes:\n    block = {}\n    def __init__(self, t=None):\n        self.t = t\n"
SETS += "    @classmethod\n    def of(cls, v):\n        cls.{} = v\n"
GET = "class Op:\n    def get(self, k):\n        return 0\n    def view(self, k):\n        return 0\n"
PUT = "class Op:\n    def __init__(self, t=0):\n        self.t = t\n    def append(self, t):\n        return self.t\n"
REFUSED = {
    "a dict beside an own get": ("z = float({1: x}.get(1))", GET, "host_read"),
    "a tensor beside an own view": ("z = [0][x.view(1)]", GET, "host_read"),
    "a list beside an own append": ("z = []\nz.append(x)\nz = float(z[0])", PUT, "host_read"),
    "an own append of what may be one": ("z = float([Op(x), []][0].append(1))", PUT, "host_read"),
    "an append that is handed on": ("z = []\nf = z.append\nf(x)\nz = float(z[0])", PUT, "forbidden_attribute"),
    "a set beside an own add": (
        "z = set()\nz.add(total)\nz = [f(x) for f in z]", ROWS + "def total(t):\n    return float(t)\n", "host_read",
    ),
    "a function that such a field holds": (
        "z = [Op(total)][0].items(x)",
        "class Op:\n    def __init__(self, f):\n        self.items = f\ndef total(t):\n    return float(t)\n",
        "host_read",
    ),
    "a set that is taken for an instance": (
        "z = set()\nMore.put(z, total)\nz = [f(x) for f in z]",
        "class Op:\n    def put(self, f):\n        self.add(f)\n    def add(self, f):\n        return 1\n"
        "class More(Op):\n    pass\ndef total(t):\n    return float(t)\n",
        "host_read",
    ),
    "an instance, or what it gets": (
        "z = [0][ROWS.pick(x).add(1, 1)]",
        ROWS + "class Picks(Rows):\n    def pick(self, t):\n        return self if t is None else t\nROWS = Picks()\n",
        "host_read",
    ),
    "a field of two classes": (
        "z = [0][[Tuned(), Other(x)][1].rows.add(1, 1)]",
        ROWS + "class Other:\n    def __init__(self, t):\n        self.rows = t\n",
        "host_read",
    ),
    "a mapping of its own": (
        "z = {**Op()}",
        "class Op:\n    def keys(self):\n        return []\n    def __getitem__(self, k):\n        return float(k)\n",
        "rebinding",
    ),
    "what counts as torch's result": (
        "z = torch.nn.functional.tanh(Op(x))\nz.zero_()",
        "class Op:\n    def __init__(self, t):\n        self.t = t\n    def tanh(self):\n        return self.t\n",
        "rebinding",
    ),
    "a reading beside an own one": (
        "z = [Op(), x][1].item()", "class Op:\n    def item(self):\n        return 1\n", "host_read",
    ),
    "what torch calls": ("torch.split(Op(), x)\nz = KEPT[0]", SPLIT, "host_read"),
    "what torch calls on a class": (
        "torch.split(Op, x)\nz = KEPT[0]",
        SPLIT.replace("    def split(self, ", "    @staticmethod\n    def split("),
        "host_read",
    ),
    "what torch calls as a value": ("f = [torch.split][0]\nf(Op(), x)\nz = KEPT[0]", SPLIT, "host_read"),
    "what a method registers reads": (
        "z = KEPT[0](x)",
        "KEPT = []\nclass Rules:\n    def register(self, f):\n        KEPT.append(f)\n        return f\n"
        "RULES = Rules()\n@RULES.register\ndef third(t):\n    return float(t)\n",
        "host_read",
    ),
    "what a method makes of a function reads": (
        "z = third(x)",
        "class Rules:\n    def wrap(self, f):\n        def inner(t):\n            return float(f(t))\n"
        "        return inner\n"
        "RULES = Rules()\n@RULES.wrap\ndef third(t):\n    return t\n",
        "host_read",
    ),
    "an order of tensors": ("z = [x, y]\nz.sort(key=lambda t: t.sum())", "", "host_read"),
    "an order by a function that reads": (
        "z = [x, y]\nz.sort(key=total)", "def total(t):\n    return float(t)\n", "host_read",
    ),
    "an order by what may be any function": (
        "z = [x, y]\nz.sort(key=TRIED[0])", "def total(t):\n    return float(t)\nTRIED = [total]\n", "host_read",
    ),
    "functions called by an order": (
        "z = [same, half]\nz.sort(key=lambda f: f(x))", "def same(t):\n    return t\n", "host_read",
    ),
    "a place of a tensor": ("z = bisect.bisect_left([1, 2], x)", "", "host_read"),
    "a place among tensors": ("z = bisect.bisect([x, y], n)", "", "host_read"),
    "a place by a key": (
        "z = bisect.bisect([1], n, key=TRIED[0])", "def total(t):\n    return float(t)\nTRIED = [total]\n", "host_read",
    ),
    "a list in order": ("bisect.insort([1], n)", "", "forbidden_call"),
    "a private name of a tensor": ("z = x._values", PRIVATE, "private_name"),
    "a private name of what may be a tensor": ("z = [Sizes(), x][1]._values", PRIVATE, "private_name"),
    "a private name set on a tensor": (
        "Sizes.put(x)", PRIVATE + "    def put(self):\n        self._values = 1\n", "rebinding",
    ),
    "a version of a tensor": ("z = Sizes.of(x, 1)", PRIVATE.replace("_values", "_version"), "private_name"),
    "a kernel beside it": ("z = [Op(), kernel][1].run(x, y)", OPS, "tensor_method"),
    "the function of a kernel": ("z = [Op(), kernel][1].fn", OPS, "forbidden_attribute"),
    "a compiled kernel": ("z = [Op(), kernel[(1,)](x, y, out, n, BLOCK=16)][1].run(x, y)", OPS, "tensor_method"),
    "a launch": ("z = [Op(), Launch(kernel, (1,), n=1, BLOCK=16)][1].run(x, y)", OPS, "tensor_method"),
    "a method of a class as a value": ("z = [Op, Op()][0].run(x, y)", OPS, "tensor_method"),
    "a method that reads": (
        "z = pick(n).run(x, y)", OPS.replace("return torch.mul(x, y)", "return float(x)"), "host_read",
    ),
    "a frame": (
        "z = gen().gi_frame",
        "class Op:\n    def __init__(self):\n        self.gi_frame = 1\ndef gen():\n    yield Op()\n",
        "forbidden_attribute",
    ),
    "what a partial function calls": (
        "z = [Op(), functools.partial(half)][1].func",
        "class Op:\n    def __init__(self):\n        self.func = 1\n",
        "forbidden_attribute",
    ),
    "loggers above a logger": (
        "z = [Op(), logging.getLogger()][1].manager",
        "class Op:\n    def __init__(self):\n        self.manager = 1\n",
        "forbidden_attribute",
    ),
    "an address": (
        "z = [Op(), x][1].data_ptr()", "class Op:\n    def data_ptr(self):\n        return 1\n", "tensor_method",
    ),
    "a method of tuples": ("z = Op(1).count", "class Op(typing.NamedTuple):\n    count: int\n", "rebinding"),
    "a tensor kept by a class": ("Sizes.of(x)\nz = float(Sizes.block)", SETS.format(1, "block"), "host_read"),
    "an input kept by a class": ("Sizes.of(x)\nz = Sizes.block.add_(1)", SETS.format(1, "block"), "in_place"),
    "a function that a class is given": (
        "Sizes.of(reads)\nz = Sizes(x).block()",
        SETS.format(1, "block") + "def reads(s):\n    return float(s.t)\n",
        "host_read",
    ),
    "a function that gets the instance first": (
        "Sizes.of(reads)\nz = Sizes().block(x)",
        SETS.format(1, "block") + "def reads(s, t=1):\n    return float(t)\n",
        "host_read",
    ),
    "a method that is replaced": ("Sizes.of(half)", SETS.format(1, "of"), "attribute_assignment"),
    "a field that the class does not have": ("Sizes.of(half)", SETS.format(1, "shape"), "attribute_assignment"),
    "a field of torch": ("torch.Tensor.block = 1", SETS.format(1, "block"), "attribute_assignment"),
    "a kernel of a class": ("Sizes.block = half", SETS.format("kernel", "more"), "attribute_assignment"),
    "a list of a method": ("z = Op().sizes() * x", "class Op:\n    def sizes(o):\n        return [0]\n", "host_read"),
    "a list of a call": ("z = Op()() * x", "class Op:\n    def __call__(self):\n        return [0]\n", "host_read"),
    "a list of a property": (
        "z = Op().sizes * x", "class Op:\n    @property\n    def sizes(self):\n        return [0]\n", "host_read",
    ),
    "a list of a table's function": ("z = T[0]() * x", "def sizes():\n    return [0]\nT = [sizes]\n", "host_read"),
    "a list of a table's lambda": ("z = T[0]() * x", "T = [lambda: [0]]\n", "host_read"),
    "a list that a memo keeps": (
        "z = KEPT(n) * x",
        "class Memo:\n    def __init__(self, f):\n        self.f = f\n        self.made = {}\n"
        "    def __call__(self, k):\n        if k not in self.made:\n            self.made[k] = self.f(k)\n"
        "        return self.made[k]\n"
        "def sizes(n):\n    return [0]\nKEPT = Memo(sizes)\n",
        "host_read",
    ),
    "a list that is put into a dict": ("z = D.setdefault(1, [0])\nz0 = D.get(1) * x", "D = {}\n", "host_read"),
    "a list that is put into a list": ("L = []\nL.append([0])\nz = L[0] * x", "", "host_read"),
    "a text of a table's function": ("z = T[0]() % x", "def text():\n    return '%s'\nT = [text]\n", "host_read"),
    "a text of a generator": (
        "z = str(T[0]())", "def numbers():\n    return map(int, (1, 2))\nT = [numbers]\n", "forbidden_name",
    ),
    "what a property returns": (
        "z = float(Op().gn(x))",
        "def same(t):\n    return t\nclass Op:\n    @property\n    def gn(self):\n        return same\n",
        "host_read",
    ),
}  # fmt: skip


def found(tmp_path, body, more):
    return [f.rule for f in check(tmp_path, IMPORTS + in_wrapper(body) + more)]


@pytest.mark.parametrize("what", ACCEPTED)
def test_a_known_instance_has_its_own_members(tmp_path, what):
    assert found(tmp_path, *ACCEPTED[what]) == []


@pytest.mark.parametrize("what", REFUSED)
def test_what_may_be_another_object_is_refused(tmp_path, what):
    body, more, rule = REFUSED[what]
    assert rule in found(tmp_path, body, more)


def test_a_setter_of_a_property_is_told_once(tmp_path):
    text = "class Sizes:\n    def __init__(self):\n        self.one = 1\n    @property\n    def block(self):\n"
    text += "        return self.one\n    @block.setter\n    def block(self, value):\n        self.one = value\n"
    (finding,) = check(tmp_path, in_wrapper("z = range(Sizes().block)") + text)
    assert finding.rule == "decorator" and "set_block" in finding.message
