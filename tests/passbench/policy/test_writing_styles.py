"""The same pass written in other ways: objects of siblings, registries, tables by name, texts of keys; and what would
hide behind each of them."""

import pytest

from tests.passbench.policy.test_policy import check, in_wrapper

IMPORTS = "import enum\nimport functools\nimport logging\nimport lib as cfg\nfrom lib import PLAN, TABLE, register\n"
IMPORTS += "import torch.nn.functional as F\n"
LIB = """
from dataclasses import dataclass

@dataclass
class Plan:
    block: int
    more: dict

    def grid(self, n):
        return (n // self.block,)

PLAN, TABLE = Plan(64, {"num_warps": 4}), {64: 1}
ROUTES = {}

def register(name):
    def keep(function):
        ROUTES[name] = function
        return function
    return keep

def call(name, *tensors):
    return ROUTES[name](*tensors)
"""
KERNEL = "@triton.jit\ndef other(x_ptr, n, BLOCK: tl.constexpr = 16, WIDE: tl.constexpr = 1):\n    {}\n"
TABLED = "H = {{'WIDE': lambda a: {}}}\n@triton.heuristics(values=H)\n" + KERNEL.format("tl.store(x_ptr, n)")
READS_ITSELF = "class Kept:\n    def true(self):\n        return 1 if self else 2\nclass Larger(Kept):\n    pass\n"
WRITTEN = "import typing\n@dataclass\nclass Kept:\n    a: typing.Any\n    def hold(self, b):\n        self.{} = b\n"
ACCEPTED = {
    "a sibling's dict": "cfg.TABLE.get(n, 2) + TABLE.get(n, 2) + cfg.TABLE[64] + len(cfg.PLAN.more.items())",
    "a sibling's instance": "PLAN.block + cfg.PLAN.block + cfg.PLAN.grid(n)[0] + cfg.Plan(1, {}).block",
    "a registry": ("cfg.call('double', x)", "@register('double')\ndef double(t):\n    return t * 2\n"),
    "a decorator of its own": (
        "double(x)",
        "def plain(f):\n    @functools.wraps(f)\n    def inner(*args):\n        return f(*args)\n    return inner\n"
        "@plain\ndef double(t):\n    return t * 2\n",
    ),
    "heuristics by name": ("other[(1,)](torch.empty_like(x), n)", TABLED.format("4 if a['n'] > 8 else 1")),
    "loops in a decorator": (
        "1",
        "@triton.autotune([triton.Config({'BLOCK': b}) for b in (16, 32) for n in (1,)], key=['n'])\n"
        + KERNEL.format("tl.store(x_ptr, n)"),
    ),
    "a route of texts": (
        "1 if Route(route_name) is Route.ADD and Route.ADD.value == 'add' else Route.NEXT",
        "route_name = 'add'\nclass Route(str, enum.Enum):\n    ADD = 'add'\n    NEXT = enum.auto()\n",
    ),
    "texts of keys": (
        "f'{sorted(ROUTES)} {list(ROUTES.keys())}' + ', '.join(ROUTES) + str(ROUTES.get('a') is None)",
        "def one(t):\n    return t\nROUTES = {'a': one}\n",
    ),
    "map of a lambda": "[*map(lambda t: t.contiguous(), (x, y))] + list(map(torch.Tensor.float, (x, y)))",
    "in place on a result": "x.pow(2).mean(-1, keepdim=True).add_(1e-6).rsqrt_()",
    "in place on a copy": "x.to(torch.float32, copy=True).mul_(2)",
    "a field called as a method of tensors": (
        "Kept(n).stride + len(KEPT)",
        WRITTEN.format("stride").replace("a: typing.Any", "stride: int") + "KEPT = [Kept(1)]\n",
    ),
    "a class method beside others that bind": (
        "Kept.of(n).hold(1)",
        WRITTEN.format("stride").replace("a: typing.Any", "stride: int\n    MOST = 4")
        + "    @classmethod\n    def of(cls, n):\n        return cls(min(n, cls.MOST))\n",
    ),
    "a constructor of its base": (
        "Larger(n).a",
        "class Base:\n    def __init__(self, a):\n        self.a = a\n"
        "class Larger(Base):\n    def __init__(self, a):\n        Base.__init__(self, a)\n",
    ),
    "fields that tensors have as methods": (
        "SPEC.kernel[(SPEC.tile,)](torch.empty_like(x), n + SPEC.sum) if SPEC.mode == 'a' else x.sum()",
        KERNEL.format("tl.store(x_ptr, n)")
        + "import typing\n@dataclass\nclass Spec:\n    kernel: typing.Callable\n    mode: str\n    tile: int = 1\n"
        + "    sum: int = 0\nSPEC = Spec(other, 'a')\n",
    ),
    "a namespace of settings": (
        "SETTINGS.block + len(SETTINGS.more.items())",
        "import types\nSETTINGS = types.SimpleNamespace(block=64, more={'num_warps': 4})\n",
    ),
    "members of an enumeration, listed": (
        "[one.at_most(n) for one in Route] + [one for one in list(Route) if one.at_most(n)]",
        "class Route(enum.Enum):\n    ADD = 1\n    def at_most(self, n):\n        return self is Route.ADD and n < 9\n",
    ),
    "a method of its base": (
        "Larger(n).twice()",
        "@dataclass\nclass Base:\n    a: int\n    def twice(self):\n        return self.a * 2 if self else 0\n"
        "class Larger(Base):\n    def twice(self):\n        return Base.twice(self) + 1\n",
    ),
    "one of two numbers by name": (
        "other[(1,)](torch.empty_like(x), n)",
        KERNEL.format("tl.store(x_ptr, tl.where(x=1, y=n, condition=n > 1) + tl.where(*(n > 1, 1, 2)))"),
    ),
    "levels of a log": "logging.basicConfig(level=logging.WARNING) or logging.getLogger('a').setLevel(logging.INFO)",
    "the type behind a parameter": (
        "other[(1,)](torch.empty_like(x), n)",
        KERNEL.format("tl.store(x_ptr, n.to(x_ptr.type.element_ty))"),
    ),
}
REFUSED = {
    "a tensor in a sibling's dict": ("container", "TABLE.update(a=x)", ""),
    "a sibling's function": ("private_name", "cfg.call.__globals__", ""),
    "a sibling's generator": ("forbidden_attribute", "cfg.PLAN.gi_frame", ""),
    "what a decorator puts in the place": (
        "host_read",
        "one(x)",
        "def reads(t):\n    return float(t)\ndef swap(f):\n    return reads\n@swap\ndef one(t):\n    return 1\n",
    ),
    "a decorator's function as a number": (
        "host_read",
        "1 if one(x) else 2",
        "def same(f):\n    return f\n@same\ndef one(t):\n    return t[0]\n",
    ),
    "jit above a decorator": (
        "decorator",
        "1",
        "def same(f):\n    return f\n@triton.jit\n@same\ndef other(x_ptr):\n    tl.store(x_ptr, 1)\n",
    ),
    "code of another function": (
        "decorator",
        "1",
        "def one(t):\n    return t\n@functools.wraps(one, assigned=('__code__',))\ndef two(t):\n    return 1\n",
    ),
    "the name of a library's function": (
        "decorator",
        "1",
        "from torch.nn.functional import softmax\n@functools.wraps(softmax)\ndef two(t):\n    return 1\n",
    ),
    "a method of a tensor by a field's name": (
        "forbidden_attribute",
        "x.mode",
        "@dataclass\nclass Spec:\n    mode: str\n",
    ),
    "a field that reads": (
        "host_read",
        "x.item()",
        "@dataclass\nclass Spec:\n    item: int\n",
    ),
    "a namespace that is set": (
        "attribute_assignment",
        "put(1)",
        "import types\nN = types.SimpleNamespace(kept=1)\ndef put(t):\n    N.kept = t\n",
    ),
    "a namespace that frames could be read by": (
        "rebinding",
        "1",
        "import types\nN = types.SimpleNamespace(gi_frame=1)\n",
    ),
    "a namespace made in a call": ("forbidden_call", "types.SimpleNamespace(a=x)", "import types\n"),
    "a namespace of tensors": ("container", "1", "import types\nN = types.SimpleNamespace(kept=torch.zeros(1))\n"),
    "heuristics by name that read": (
        "heuristic",
        "other[(1,)](torch.empty_like(x), n)",
        TABLED.format("a['x_ptr'][0]"),
    ),
    "a text made of a function": (
        "module_statement",
        "1",
        "def one(t):\n    return t\nclass Route(str, enum.Enum):\n    ADD = (one,)\n",
    ),
    "a number that is none": ("module_statement", "1", "class Route(int, enum.Enum):\n    ADD = len(TABLE)\n"),
    "a key that is a function": (
        "forbidden_name",
        "put() or str(list(ROUTES))",
        "def one(t):\n    return t\nROUTES = {'a': 1}\ndef put():\n    ROUTES[one] = 1\n",
    ),
    "a function put in by another name": (
        "container",
        "put() or str(list(ROUTES))",
        "def one(t):\n    return t\nROUTES = {'a': 1}\nOTHER = ROUTES\ndef put():\n    OTHER[one] = 1\n",
    ),
    "map of a reading operator": ("host_read", "list(map(torch.Tensor.item, (x, y)))", ""),
    "map of a writing operator": ("in_place", "list(map(torch.Tensor.add_, (x,), (y,)))", ""),
    "in place on what may be an input": ("in_place", "x.to(torch.float32).mul_(2)", ""),
    "a log in a file": ("forbidden_call", "logging.basicConfig(filename='a')", ""),
    "a list that sorts tensors": ("host_read", "[x[0], y[0]].sort()", ""),
    "as many classes as there are": ("host_read", "torch.nn.functional.one_hot(x).shape[-1]", ""),
    "as many classes as -1 says": ("host_read", "torch.nn.functional.one_hot(x, -1).shape[-1]", ""),
    "as many classes as an argument of its own says": ("host_read", "torch.nn.functional.one_hot(x, k)", ""),
    "as many classes as a parameter bound again says": ("host_read", "[y := -1, F.one_hot(x, y)]", ""),
    "as many classes as there are, by stars": ("host_read", "F.one_hot(*(x, y))", ""),
    "as many classes as there are, of a value": ("host_read", "list(map(F.one_hot, [x], [-1]))", ""),
    "as many classes as a sum says": ("host_read", "torch.nn.functional.one_hot(x, num_classes=n - n - 1)", ""),
    "where it is true, by stars": ("host_read", "torch.where(*(x,), *())[0].shape[0]", ""),
    "where it is true, and no more": ("host_read", "torch.where(x > 0, *())[0].shape[0]", ""),
    "a tensor as self": ("host_read", "Kept.true(x)", READS_ITSELF),
    "a tensor as self by name": ("host_read", "Kept.true(**{'self': x})", READS_ITSELF),
    "a tensor as self of a base": ("host_read", "Larger.true(x)", READS_ITSELF),
    "a tensor as self of a value": ("host_read", "list(map(Kept.true, [x]))", READS_ITSELF),
    "a tensor as self of a class in a list": ("host_read", "[one.true(x) for one in [Kept]]", READS_ITSELF),
    "a tensor as self of an enumeration": (
        "host_read",
        "Route.true(x)",
        READS_ITSELF.replace("class Kept", "class Route(enum.Enum)").partition("class Larger")[0],
    ),
    "a field of a tensor as self": (
        "forbidden_attribute",
        "Kept.true(x)",
        "@dataclass\nclass Kept:\n    data: int\n    def true(self):\n        return 1 if self.data else 2\n",
    ),
    "one of two addresses by name": (
        "address",
        "other[(1,)](torch.empty_like(x), n)",
        KERNEL.format("p = tl.where(n > 1, x=x_ptr, y=x_ptr)\n    tl.store(x_ptr, p.to(tl.int64))"),
    ),
    "a number beside an address by name": (
        "address",
        "other[(1,)](torch.empty_like(x), n)",
        KERNEL.format("tl.store(x_ptr, tl.load(tl.where(x=x_ptr, y=n, condition=n > 1)))"),
    ),
    "a number beside an address by stars": (
        "address",
        "other[(1,)](torch.empty_like(x), n)",
        KERNEL.format("tl.store(x_ptr, tl.load(tl.where(*(n > 1, x_ptr, n))))"),
    ),
    "the type of a block": (
        "address",
        "other[(1,)](torch.empty_like(x), n)",
        KERNEL.format("p = x_ptr + tl.arange(0, BLOCK)\n    tl.store(x_ptr, tl.load(n.to(p.type.element_ty)))"),
    ),
    "the type of a parameter bound again": (
        "address",
        "other[(1,)](torch.empty_like(x), n)",
        KERNEL.format("x_ptr = x_ptr + tl.arange(0, 4)\n    tl.store(x_ptr, tl.load(n.to(x_ptr.type.element_ty)))"),
    ),
    "a number beside an address": (
        "address",
        "other[(1,)](torch.empty_like(x), n)",
        KERNEL.format("tl.store(x_ptr, tl.load(tl.where(n > 1, x_ptr, n)))"),
    ),
    "a joined address": (
        "address",
        "other[(1,)](torch.empty_like(x), n)",
        KERNEL.format("i = tl.arange(0, BLOCK)\n    tl.store(tl.join(x_ptr + i, n + i), 1)"),
    ),
    "a method on another's": ("rebinding", "Kept.hold(x, n)", WRITTEN.format("stride")),
    "a method on a class of torch's": ("rebinding", "Kept.hold(torch.Tensor, n)", WRITTEN.format("shape")),
    "a method by another name of its class": ("rebinding", "K.hold(x, n)", WRITTEN.format("numel") + "K = Kept\n"),
    "a method out of a table": ("rebinding", "K['a'].hold(x, n)", WRITTEN.format("dim") + "K = {'a': Kept}\n"),
    "a method as a value": ("rebinding", "list(map(Kept.hold, [x], [n]))", WRITTEN.format("view")),
    "an inherited method": (
        "rebinding",
        "Larger.hold(torch.Tensor, n)",
        WRITTEN.format("shape") + "class Larger(Kept):\n    pass\n",
    ),
    "a class that makes its own": (
        "rebinding",
        "Kept.of(x)",
        WRITTEN.format("stride") + "    @classmethod\n    def of(cls, t):\n        cls.hold(t, 1)\n",
    ),
    "a class method that hands its class on": (
        "rebinding",
        "Kept.own().hold(x, n)",
        WRITTEN.format("stride") + "    @classmethod\n    def own(cls):\n        return cls\n",
    ),
    "a maker of another class": (
        "private_name",
        "Made.__init__(torch.Tensor, n)",
        "class Made:\n    def __init__(self, a):\n        self.shape = a\n",
    ),
    "a maker in another method": (
        "private_name",
        "K.again(torch.Tensor)",
        "class Made:\n    def __init__(self, a):\n        self.shape = a\n"
        "    def again(self):\n        Made.__init__(self, 1)\nK = Made\n",
    ),
    "an operator without an overload": ("function_as_value", "[torch.ops.aten.relu]", ""),
    "a hook of a configuration": ("rebinding", "Kept.hold(triton.Config({}), n)", WRITTEN.format("pre_hook")),
}


def found(tmp_path, value, more=""):
    text = "from dataclasses import dataclass\n" + IMPORTS + in_wrapper(f"z = {value}") + "\n" + more
    return [(f.rule, f.message) for f in check(tmp_path, text, lib=LIB)]


@pytest.mark.parametrize("what", ACCEPTED)
def test_it_is_allowed_however_it_is_written(tmp_path, what):
    case = ACCEPTED[what]
    assert found(tmp_path, *(case if isinstance(case, tuple) else (case,))) == []


@pytest.mark.parametrize("what", REFUSED)
def test_what_would_hide_behind_it_is_refused(tmp_path, what):
    rule, value, more = REFUSED[what]
    assert rule in [name for name, _ in found(tmp_path, value, more)]
