"""What calls return that name no function: the policy follows how functions come into variables, fields and items."""

import pytest

from tests.passbench.policy.test_policy import check, in_wrapper

FUNCTIONS = """
import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import itertools
import types
import typing

def same(t):
    return t

def floor(t):
    return math.floor(t)

def half(t):
    return t // 2

"""
KNOWN = {
    "keys": ("", "D = {}\nD[FN] = 1", "next(iter(D))"),
    "keys loop": ("D = {FN: 1}\n", "for k in D:\n    z = k", "z"),
    "setdefault": ("D = {}\n", "D.setdefault('k', FN)", "D['k']"),
    "get default": ("D = {}\n", "", "D.get('k', FN)"),
    "pop default": ("D = {}\n", "", "D.pop('k', FN)"),
    "named tuple in list": (
        "class B(typing.NamedTuple):\n    size: int\n    gn: object\nT = [B(1, FN)]\n",
        "for s, g in T:\n    z = g",
        "z",
    ),
    "dataclass": ("@dataclasses.dataclass\nclass B:\n    size: int\n    fn: object\n", "b = B(1, FN)", "b.fn"),
    "dataclass base": (
        "@dataclasses.dataclass\nclass B0:\n    size: int\n@dataclasses.dataclass\nclass B(B0):\n    fn: object\n",
        "b = B(1, FN)",
        "b.fn",
    ),
    "self table": ("class C:\n    T = {'a': FN}\n    def get(self):\n        return self.T['a']\n", "", "C().get()"),
    "global": ("G = half\ndef put():\n    global G\n    G = FN\n", "put()", "G"),
    "nonlocal": ("", "g = half\ndef put():\n    nonlocal g\n    g = FN\nput()", "g"),
    "walrus": ("", "[g := q for q in (half, FN)]", "g"),
    "comprehension name": ("", "q = [FN]\nr = [q for q in q]", "r[0]"),
    "match": ("", "match FN:\n    case g:\n        pass", "g"),
    "star2": ("", "g, *a = [half, FN]", "a[0]"),
    "try": ("", "try:\n    g = FN\nexcept ValueError:\n    g = half", "g"),
    "generator": ("def gen():\n    yield half\n    yield FN\n", "g = list(gen())[1]", "g"),
    "yield from": ("def gen0():\n    yield FN\ndef gen():\n    yield from gen0()\n", "g = next(gen())", "g"),
    "enum call": (
        "class R(enum.Enum):\n    A = 1\n    def __call__(self, t):\n        return FN(t)\n",
        "",
        "[r for r in R][0]",
    ),
    "lambda": ("", "h = lambda: FN", "h()"),
    "lambda default": ("", "h = lambda g=FN: g", "h()"),
    "lambda table": ("T = [lambda t: FN(t)]\n", "", "T[0]"),
    "kwargs": ("def h(**k):\n    return k['f']\n", "", "h(f=FN)"),
    "kwargs spread": ("def h(**k):\n    return k['f']\n", "", "h(**{'f': FN})"),
    "args": ("def h(*a):\n    return a[1]\n", "", "h(half, FN)"),
    "args spread": ("def h(a, *b):\n    return b[0]\n", "", "h(*[half, FN])"),
    "kw spread to name": ("def h(a, b):\n    return b\n", "", "h(half, **{'b': FN})"),
    "kw default": ("def h(*, g=FN):\n    return g\n", "", "h()"),
    "map named": ("", "g = list(map(same, [FN]))[0]", "g"),
    "sorted": ("", "g = sorted([FN], key=lambda q: 1)[0]", "g"),
    "max": ("", "g = max([FN, half], key=lambda q: 1)", "g"),
    "chain star": ("", "g = list(itertools.chain(*[[half], [FN]]))[1]", "g"),
    "product": ("", "g = list(itertools.product([half, FN], [1]))[1][0]", "g"),
    "zip": ("", "g = list(zip([1], [FN]))[0][1]", "g"),
    "enumerate": ("", "for i, q in enumerate([half, FN]):\n    g = q", "g"),
    "copy": ("", "g = copy.copy([FN])[0]", "g"),
    "deque": ("", "d = collections.deque()\nd.append(FN)", "d[0]"),
    "extend": ("L = [half]\n", "L.extend([FN])", "L[1]"),
    "insert": ("L = [half]\n", "L.insert(0, FN)", "L[0]"),
    "slice": ("L = [half]\n", "L[:] = [FN]", "L[0]"),
    "plus": ("L = [half]\n", "L += [FN]", "L[1]"),
    "times": ("", "L = [FN] * 2", "L[1]"),
    "dict or": ("", "L = {'a': half} | {'b': FN}", "L['b']"),
    "update2": ("L = {'a': half}\n", "L.update({'b': FN})", "L['b']"),
    "fromkeys": ("L = dict.fromkeys('ab', FN)\n", "", "L['b']"),
    "chainmap": ("L = collections.ChainMap({'b': FN})\n", "", "L['b']"),
    "items": ("L = {'b': FN}\n", "for k0, q in L.items():\n    g = q", "g"),
    "base init": (
        "class B0:\n    def __init__(self, f):\n        self.fn = f\nclass B(B0):\n"
        "    def __init__(self, f):\n        super().__init__(f)\n",
        "b = B(FN)",
        "b.fn",
    ),
    "base init named": (
        "class B0:\n    def __init__(self, f):\n        self.fn = f\nclass B(B0):\n"
        "    def __init__(self, f):\n        B0.__init__(self, f)\n",
        "b = B(FN)",
        "b.fn",
    ),
    "dataclass base init": (
        "@dataclasses.dataclass\nclass B0:\n    fn: object\nclass B(B0):\n    def __init__(self, f):\n"
        "        super().__init__(f)\n",
        "b = B(FN)",
        "b.fn",
    ),
    "property": ("class B:\n    @property\n    def fn(self):\n        return FN\n", "", "B().fn"),
    "cached property": (
        "class B:\n    @functools.cached_property\n    def fn(self):\n        return FN\n",
        "",
        "B().fn",
    ),
    "registered": (
        "T = {}\ndef register(k):\n    def deco(f):\n        T[k] = f\n        return f\n"
        "    return deco\n@register('k')\ndef g0(t):\n    return FN(t)\n",
        "",
        "T['k']",
    ),
    "instance": ("class B:\n    def __call__(self, t):\n        return FN(t)\nT = {'k': B()}\n", "", "T['k']"),
    "derived instance": (
        "class B:\n    def __call__(self, t):\n        return half(t)\nclass B2(B):\n"
        "    def __call__(self, t):\n        return FN(t)\nT = {'k': B2()}\n",
        "",
        "T['k']",
    ),
    "closure kept": (
        "def make(f):\n    def inner(t):\n        return f(t)\n    return inner\nT = {}\n",
        "T['k'] = make(FN)",
        "T['k']",
    ),
    "ifexp": ("", "", "(FN if n > 1 else half)"),
    "lru table": ("@functools.lru_cache\ndef memo(k):\n    return FN(k)\nT = [memo]\n", "", "T[0]"),
    "swap": ("", "g, h = half, FN\ng, h = h, g", "g"),
    "chain fields": (
        "class B:\n    def __init__(self, f):\n        self.inner = f\nclass O:\n"
        "    def __init__(self, b):\n        self.b = b\n",
        "o = O(B(FN))",
        "o.b.inner",
    ),
    "return table": ("def table():\n    return {'k': FN}\n", "", "table()['k']"),
    "recursion": ("def rec(f, k):\n    return f if k < 1 else rec(f, k - 1)\n", "", "rec(FN, 3)"),
    "memo": (
        "class Memo:\n    def __init__(self, f):\n        self.f = f\n        self.c = {}\n"
        "    def __call__(self, *k):\n        if k not in self.c:\n"
        "            self.c[k] = self.f(*k)\n        return self.c[k]\nM = Memo(FN)\n",
        "",
        "M",
    ),
    "memo of functions": (
        "class Memo:\n    def __init__(self, f):\n        self.f = f\n        self.c = {}\n"
        "    def __call__(self, *k):\n        if k not in self.c:\n"
        "            self.c[k] = self.f(*k)\n        return self.c[k]\ndef mk(k):\n    return FN\n"
        "M = Memo(mk)\n",
        "",
        "M(n)",
    ),
    "next": ("T = [(1, half), (2, FN)]\n", "", "next(f for s, f in T if s > 1)"),
    "generic": (
        "K = typing.TypeVar('K')\nclass B(typing.Generic[K]):\n    def __init__(self, f):\n        self.fn = f\n",
        "b = B(FN)",
        "b.fn",
    ),
    "alias call": (
        "class M:\n    def forward(self, t):\n        return FN(t)\n    __call__ = forward\nT = [M()]\n",
        "",
        "T[0]",
    ),
    "lambda in field": (
        "class V:\n    def __init__(self, m):\n        self.m = m\nV0 = V(lambda t: FN(t))\n",
        "",
        "V0.m",
    ),
    "two lambdas": ("V = (lambda t: half(t), lambda t: FN(t))\n", "", "V[1]"),
    "dictcomp": ("", "d = {k: v for k, v in [('k', FN)]}", "d['k']"),
    "dict zip": ("", "d = dict(zip('k', [FN]))", "d['k']"),
    "iter pair": ("", "a = iter([FN])", "next(a)"),
    "starred dict": ("D = {'k': FN}\n", "E0 = {**D}", "E0['k']"),
    "sum": ("", "a = sum([[half], [FN]], [])", "a[1]"),
    "min default": ("", "a = min([], default=FN)", "a"),
}
"""Ways by which a function `FN` comes to where it is called: module text, body, and what is called."""
ROWS = "PAIRS = [(same, FN), (same, half)]\n"
KNOWN |= {
    "a column": (ROWS, "for g0, g in PAIRS:\n    z = g", "z"),
    "a column in a comprehension": (ROWS, "g = [h for g0, h in PAIRS][0]", "g"),
    "a column of lists": ("PAIRS = (['a', [half]], ['b', [FN]])\n", "for k, g in PAIRS:\n    z = g", "z[0]"),
}
UNKNOWN = {
    "set difference": ("", "S = {half, FN}", "next(iter(S - {half}))"),
    "named tuple replaced item": (
        "class B(typing.NamedTuple):\n    size: int\n    fn: object\n",
        "b = B(1, half)._replace(fn=FN)",
        "b[1]",
    ),
    "replace spread": (
        "@dataclasses.dataclass\nclass B:\n    fn: object\n",
        "b = dataclasses.replace(B(half), **{'fn': FN})",
        "b.fn",
    ),
    "dataclass kw_only order": (
        "@dataclasses.dataclass\nclass B:\n    fn: object = dataclasses.field(kw_only=True)\n"
        "    other: object = None\n",
        "b = B(half, fn=FN)",
        "b.fn",
    ),
    "dataclass not init": (
        "@dataclasses.dataclass\nclass B:\n"
        "    size: int = dataclasses.field(init=False, default=1)\n    fn: object = None\n"
        "    g: object = None\n",
        "b = B(FN, half)",
        "b.fn",
    ),
    "dataclass default": ("@dataclasses.dataclass\nclass B:\n    fn: object = FN\n", "b = B()", "b.fn"),
    "dataclass factory": (
        "@dataclasses.dataclass\nclass B:\n    t: dict = dataclasses.field(default_factory=lambda: {'k': FN})\n",
        "b = B()",
        "b.t['k']",
    ),
    "class table": (
        "class C:\n    T = {'a': half}\n    @classmethod\n    def put(cls, f):\n        cls.T['k'] = f\n",
        "C.put(FN)",
        "C.T['k']",
    ),
    "enum": ("class R(enum.Enum):\n    A = (FN,)\n", "", "R.A.value[0]"),
    "enum call attr": (
        "class R(enum.Enum):\n    A = 1\n    def __call__(self, t):\n        return FN(t)\n",
        "r = R.A",
        "r",
    ),
    "manager": ("@contextlib.contextmanager\ndef m(f):\n    yield f\n", "with m(FN) as g:\n    z = g", "z"),
    "partial kept": (
        "P = functools.partial(FN)\nclass K:\n    def __init__(self, f):\n        self.fn = f\n",
        "k0 = K(P)",
        "k0.fn",
    ),
    "reduce named": ("def second(a, b):\n    return b\n", "g = functools.reduce(second, [half, FN])", "g"),
    "filter": ("", "g = list(filter(None, [FN]))[0]", "g"),
    "accumulate": ("", "g = list(itertools.accumulate([half, FN], lambda a, b: b))[1]", "g"),
    "defaultdict made": ("L = collections.defaultdict(lambda: FN)\n", "", "L['k']"),
    "bound kept": (
        "class B:\n    def go(self, t):\n        return FN(t)\nclass K:\n    def __init__(self, f):\n"
        "        self.fn = f\n",
        "g = K(B().go)",
        "g.fn",
    ),
    "class dict of methods": (
        "class B:\n    def go(self, t):\n        return FN(t)\n    def pick(self, k):\n"
        "        return {'a': self.go}[k]\n",
        "",
        "B().pick('a')",
    ),
    "static value": (
        "class B:\n    @staticmethod\n    def go(t):\n        return FN(t)\nT = {'k': B.go}\n",
        "",
        "T['k']",
    ),
    "torch op": ("T = [half, torch.relu]\n", "", "T[1]"),
    "tensor method": ("", "T = [half, x.relu]", "T[1]"),
    "namespace": ("NS = types.SimpleNamespace(fn=FN)\n", "", "NS.fn"),
    "typed dict": ("class D(typing.TypedDict):\n    fn: object\n", "d = D(fn=FN)", "d['fn']"),
    "astuple": (
        "@dataclasses.dataclass\nclass B:\n    size: int\n    gn: object\n",
        "b = B(1, FN)",
        "dataclasses.astuple(b)[1]",
    ),
    "asdict": (
        "@dataclasses.dataclass\nclass B:\n    size: int\n    gn: object\n",
        "b = B(1, FN)",
        "dataclasses.asdict(b)['gn']",
    ),
    "_asdict": ("class B(typing.NamedTuple):\n    size: int\n    gn: object\n", "b = B(1, FN)", "b._asdict()['gn']"),
    "torch module": ("class M(torch.nn.Module):\n    def forward(self, t):\n        return FN(t)\nm = M()\n", "", "m"),
    "getitem": ("class M:\n    def __getitem__(self, k):\n        return FN\nT = M()\n", "", "T[0]"),
    "param alias": ("T = {'a': half}\ndef put(d, v):\n    d['k'] = v\n", "put(T, FN)", "T['k']"),
    "post init": (
        "@dataclasses.dataclass\nclass B:\n    fn: object = half\n    def __post_init__(self):\n        self.fn = FN\n",
        "",
        "B().fn",
    ),
}
"""The same, where it is not known what is called, or the form is refused."""
SWAPPED = "PAIRS = [(half, same), (half, FN)]\n"
UNKNOWN |= {
    "a row": (SWAPPED, "q = PAIRS[1]\nfor g, g0 in PAIRS:\n    z = g", "q[1]"),
    "a row that a loop names": (SWAPPED, "for q in PAIRS:\n    z = q[1]\nfor g, g0 in PAIRS:\n    z0 = g", "z"),
    "a table under another name": (SWAPPED, "Q = PAIRS\nfor g, g0 in Q:\n    z = g0", "z"),
    "a table that is a function's, too": (
        SWAPPED + "def rows():\n    return PAIRS\n",
        "for g, g0 in rows():\n    z = g0",
        "z",
    ),
    "a row that is put in": (SWAPPED, "PAIRS.append((FN, half))\nfor g, g0 in PAIRS:\n    z = g", "z"),
    "a table that a function binds": (
        SWAPPED + "def more():\n    global PAIRS\n    PAIRS = [(FN, half)]\n",
        "more()\nfor g, g0 in PAIRS:\n    z = g",
        "z",
    ),
    "rest of a row": (SWAPPED, "for g, *g0 in PAIRS:\n    z = g0[0]", "z"),
}
READING = {
    "a number of what it returns": ("same", "k = float({}(x))"),
    "a number of what it gets": ("floor", "z = {}(x)"),
    "a list as often as it says": ("same", "z = [0] * {}(x)"),
    "what it returns written to": ("same", "{}(x).zero_()"),
}


FORMS = {**KNOWN, **UNKNOWN}
CASES = [(form, reading) for form in FORMS for reading in READING]
CASES.remove(("torch op", "a number of what it gets"))  # it calls an operator alone, which gets the tensor


def found(tmp_path, form, function, use):
    more, body, called = (part.replace("FN", function) for part in form)
    lines = [*filter(None, body.split("\n")), use.format(called)]
    return check(tmp_path, FUNCTIONS + in_wrapper("\n".join(lines)) + more)


@pytest.mark.parametrize("form", KNOWN)
def test_a_number_of_a_function_that_no_call_names_is_a_number(tmp_path, form):
    assert found(tmp_path, KNOWN[form], "half", "z = list(range({}(n)))") == []


def test_columns_of_a_table_stay_apart(tmp_path):
    rules = "RULES = [(small, same), (other, half)]\ndef small(t):\n    return t.is_contiguous()\n"
    rules += "def other(t):\n    return True\n"
    body = "for fits, run in RULES:\n    if fits(x):\n        z = run(x)"
    assert check(tmp_path, FUNCTIONS + in_wrapper(body) + rules) == []
    (finding,) = check(tmp_path, FUNCTIONS + in_wrapper(body) + rules.replace("return True", "return t"))
    assert finding.rule == "host_read"


@pytest.mark.parametrize(("form", "reading"), CASES)
def test_a_tensor_is_followed_through_it(tmp_path, form, reading):
    assert found(tmp_path, FORMS[form], *READING[reading]) != []
