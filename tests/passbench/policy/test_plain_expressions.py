"""What is written otherwise and means the same: names that are written out as a text, settings that are asked for once,
short names of modules, generators of configurations; and what would hide behind each of them."""

import ast

import pytest

from passbench.policy.forms.partial_functions import write_partials
from tests.passbench.policy.test_policy import IMPORTS, check, in_wrapper

CONFIGS = (
    "def configs():\n    for w in (2, 4):\n        yield triton.Config({}, num_warps=w)\n\nTRIED = list(configs())\n"
)
PARTIAL = """
def div(d, t, up=0):
    return (t + up) // d

half = functools.partial(div, 2, up=0)
product = functools.partial(functools.reduce, operator.mul)
empty = functools.partial(torch.empty, dtype=torch.float32)
"""
ONE = """
def reads(a, t=1):
    return float(t)

one = functools.partial(reads, 1, t=1)
"""
OWN_PARTIAL = """
def div(d, t):
    return t // d

def partial(f, d):
    return float

half = partial(div, 2)
kept = half(1)

def unused():
    from functools import partial
"""
ACCEPTED = {
    "getattr": ("z = getattr(x, 'shape')[0]", ""),
    "getattr with a default": ("z = getattr(torch.version, 'hip', None)", ""),
    "a setting": ("z = BLOCK", "BLOCK = int(os.environ.get('BLOCK', '256'))\n"),
    "another setting": ("z = BLOCK", "import os\nBLOCK = os.getenv('BLOCK') or 256\n"),
    "whether there is a setting": ("z = BLOCK", "BLOCK = 256 if 'BLOCK' in os.environ else 128\n"),
    "a parameter of Triton's": ("z = NEW", "NEW = 'cache_results' in inspect.signature(triton.autotune).parameters\n"),
    "a short name of operators": ("z = aten.relu.default(x)", "aten = torch.ops.aten\n"),
    "a short name of a module": ("z = G.relu(x)", "G = torch.nn.functional\n"),
    "a module of another device": ("z = hasattr(torch.version, 'hip')", ""),
    "all types": (
        "z: Optional[int] = None",
        "from typing import *\ndef f(a: List[int]) -> Tuple[int, ...]:\n    pass\n",
    ),
    "a generator": ("z = TRIED", CONFIGS),
    "a generator in a loop": ("for c in configs():\n    pass", CONFIGS),
    "partial functions": ("z = range(half(product(x.shape, 1), up=1))\nw = empty(n)", PARTIAL),
    "functions of operator": (
        "z = list(map(operator.index, x.shape))[0] % functools.reduce(operator.mul, x.shape)\nw = ADD[n](x, y)",
        "ADD = {1: operator.add}\n",
    ),
    "a partial decorator": (
        "z = 1",
        "CONFIGS = [triton.Config({}, num_warps=4)]\ntune = functools.partial(triton.autotune, configs=CONFIGS)\n"
        "@tune(key=['n'])\n@triton.jit\ndef tuned(x_ptr, n):\n    tl.store(x_ptr, n)\n",
    ),
    "settings as JSON": (
        "z = range(WRITTEN['a'][0] + NAMED['b'])",
        "import json\nTEXT = '{\"b\": 3}'\nNAMED = json.loads(TEXT)\nWRITTEN = json.loads('{\"a\": [1, 2.5]}')\n",
    ),
    "names of functions and classes": (
        "z = f'{f.__name__} {kernel.__qualname__} {Box()}' + getattr(f, '__name__', '?')",
        "def f(t):\n    return t\nclass Box:\n    def __repr__(self):\n        return f'{self.__class__.__name__}()'\n",
    ),
    "a lock": ("with LOCK:\n    z = 1", "import threading\nLOCK = threading.Lock()\n"),
    "a module for a test": ("z = 1", "import argparse\nimport triton.testing\n"),
    "a case with a name": (
        "match n:\n    case 1 | 2:\n        pass\n    case other:\n        raise ValueError(other)",
        "",
    ),
    "keys in a loop": (
        "d = {'a': x, 'b': None}\nfor k, t in zip(d, (x, y)):\n    d[k] = t + 1\nfor k in d:\n    z = f'{k}'",
        "",
    ),
}
REFUSED = {
    "a partial function that reads": ("host_read", "z = one(t=x)", ONE),
    "arguments from a dict": ("host_read", "z = one(**{'t': x})", ONE),
    "a partial function as a value": ("host_read", "z = [one][0](t=x)", ONE),
    "a partial function of two": (
        "host_read", "z = f(x)", ONE + "g = len\nif reads:\n    g = reads\nf = functools.partial(g, 1)\n",
    ),
    "another partial": (
        "host_read", "z = f(1, x)", ONE + "def partial(a):\n    return reads\nf = partial(torch.relu)\n",
    ),
    "another partial beside an import": ("rebinding", "z = half(x)", OWN_PARTIAL),
    "an operator that is a field": ("function_as_value", "z = A().f([1], x)", "class A:\n    f = operator.getitem\n"),
    "an operator that asks": ("function_as_value", "f = operator.index\nz = f(x)", ""),
    "a product of a list": ("function_as_value", "z = D[n]([1], x.sum())", "D = {1: operator.mul}\n"),
    "a comparison of lists": ("function_as_value", "z = functools.reduce(operator.lt, [[x], [y]])", ""),
    "a map of its own": (
        "function_as_value", "z = map(operator.index)", "def map(f):\n    return f\n",
    ),
    "JSON of a tensor": ("host_read", "z = json.loads(str(x))", "import json\n"),
    "a tensor put into JSON": ("host_read", "D[1] = x\nz = float(D[1])", "import json\nD = json.loads('{}')\n"),
    "JSON with a hook": ("forbidden_call", "z = json.loads('{}', object_hook=len)", "import json\n"),
    "what is no JSON": ("forbidden_call", "z = json.loads('{a}')", "import json\n"),
    "a text that is written out often": (
        "forbidden_call", "z = 1", "import json\nT = '[1]'\nA = json.loads(T)\nB = json.loads(T)\n",
    ),
    "the name of what reads": ("host_read", "z = f(x).__name__", "def f(t):\n    return float(t)\n"),
    "the class of a tensor": ("private_name", "z = x.__class__", ""),
    "the name of a tensor's class": ("private_name", "z = x.__class__.__name__", ""),
    "a name that is set": ("attribute_assignment", "f.__name__ = 'g'", "def f(t):\n    return t\n"),
    "getattr of what is private": ("private_name", "z = getattr(x, '_version')", ""),
    "getattr of a variable": ("forbidden_name", "z = getattr(x, route)", ""),
    "getattr that reads": ("host_read", "z = getattr(x, 'item')()", ""),
    "getattr with a default that reads": ("host_read", "z = 1 if getattr(x, 'sum', x.min)() > 0 else 2", ""),
    "getattr in other letters": ("forbidden_attribute", "z = getattr(x, 'ſhape')", ""),
    "getattr of a function in use": ("host_read", "z = getattr(lib, 'reads')(x)", "import lib\n"),
    "a setting asked for in a call": ("forbidden_call", "z = os.environ.get('BLOCK')", ""),
    "a setting asked for by a function": ("forbidden_call", "z = block()", "def block():\n    return os.getenv('A')\n"),
    "a setting asked for by a lambda": ("forbidden_call", "z = block()", "block = lambda: os.getenv('A')\n"),
    "a setting asked for by a generator": ("forbidden_call", "z = A", "A = (os.getenv('A') for _ in range(9))\n"),
    "all settings": ("forbidden_call", "z = A", "A = str(os.environ)\n"),
    "a setting of a name that is computed": ("forbidden_call", "z = A", "A = os.environ.get('A' + 'B')\n"),
    "a setting times a tensor": ("host_read", "z = A * x.sum()", "A = os.environ.get('A', 'b')\n"),
    "parameters of its own": ("forbidden_call", "z = A", "A = 'x' in inspect.signature(wrapper).parameters\n"),
    "a module under another name": ("module_as_value", "t = G", "G = torch.nn.functional\n"),
    "torch under another name": ("module_as_value", "z = 1", "t = torch\n"),
    "a short name that is bound again": ("forbidden_call", "z = 1", "aten = torch.ops.aten\naten = torch.ops\n"),
    "a type that is something else": ("rebinding", "z = cast(x)", "from typing import *\ndef cast(t):\n    return t\n"),
    "a generator that gets a tensor": ("expression", "z = list(each(x))", "def each(t):\n    yield t.shape\n"),
    "a generator that hands out a tensor": (
        "host_read", "for t in each():\n    z = f'{t}'", "def each():\n    yield torch.ones(2)\n",
    ),
    "the text of a generator": ("forbidden_name", "z = f'{each()}'", "def each():\n    yield 1\n"),
    "a generator within a function": ("expression", "def each():\n    yield x\nz = list(each())", ""),
    "what is sent to a generator": ("tensor_method", "z = each().send(x)", "def each():\n    z = yield 1\n"),
    "what a generator returns": (
        "host_read", "K.append(x)\nz = list(h())",
        "K = []\ndef g():\n    yield 1\n    return K[0]\ndef h():\n    r = yield from g()\n    yield float(r)\n",
    ),
    "a text times a tensor": ("host_read", "z = f('a', x.sum())", "def f(a, t):\n    return a * t\n"),
    "a text by its name times a tensor": ("host_read", "z = f(t=x.sum(), a='a')", "def f(a, t):\n    return a * t\n"),
    "a text for a default": ("host_read", "z = f(x.sum())", "def f(t, a='a'):\n    return a * t\n"),
    "a text of a field": ("host_read", "z = K.a * x.sum()", "class K:\n    a = 'a'\n"),
    "one of two texts": ("host_read", "z = ('a' if n else 'b') * x.sum()", ""),
    "a route times a tensor": ("host_read", "z = route * x.sum()", ""),
    "a shape times a tensor": ("host_read", "z = x.shape[1:] * x.sum()", ""),
    "a format of a tensor": ("host_read", "z = route % x.sum()", ""),
    "digits by a tensor": ("host_read", "z = round(1.5, x.sum())", ""),
    "numbers from a tensor on": ("host_read", "for n, _ in enumerate([1], x.sum()):\n    pass", ""),
    "numbers from a star on": ("host_read", "for n, _ in enumerate(*([1], x.sum())):\n    pass", ""),
    "pairs by a tensor": ("host_read", "z = list(zip([1], [1, 2], strict=x.sum() > 0))", ""),
    "a place from a tensor on": ("host_read", "z = [1, 1].index(1, x.sum())", ""),
    "an end by a tensor": (
        "host_read", "D.move_to_end('a', last=x.sum())", "import collections\nD = collections.OrderedDict(a=1)\n"
    ),
    "a sequence's method": ("in_place", "S.reverse(x)", "import typing\nS = typing.MutableSequence\n"),
    "a factory of fields": (
        "host_read", "z = asdict(A(x), dict_factory=f)",
        "from dataclasses import asdict, dataclass\n@dataclass\nclass A:\n    a: object\n"
        "def f(pairs):\n    return 1 if pairs[0][1] > 0 else 0\n",
    ),
    "a lock that counts": ("tensor_method", "z = LOCK.acquire(False)", "import threading\nLOCK = threading.Lock()\n"),
    "a lock that is asked": ("tensor_method", "z = LOCK.locked()", "import threading\nLOCK = threading.Lock()\n"),
    "an imported timer": ("forbidden_call", "z = triton.testing.do_bench(wrapper)", "import triton.testing\n"),
    "an imported thread": ("forbidden_call", "threading.Thread()", "import threading\n"),
    "an imported collector": ("forbidden_call", "z = gc.get_objects()", "import gc\n"),
    "a case with a tensor's name": ("host_read", "match (n, x):\n    case (1, t):\n        z = f'{t}'", ""),
    "keys that are tensors": ("host_read", "d = {'a': x}\nd[x] = 1\nfor k in d:\n    z = 1", ""),
    "keys that came later": ("host_read", "d = {'a': x}\nd.update([(y, 1)])\nfor k in d:\n    z = f'{k}'", ""),
    "items of a list": ("host_read", "d = [x]\nfor k in d:\n    z = f'{k}'", ""),
}  # fmt: skip
LIB = "def reads(t):\n    return float(t)\n"


def found(tmp_path, body, more):
    text = "import os\nimport inspect\n" + IMPORTS + in_wrapper(body) + "\n" + more
    return [f.rule for f in check(tmp_path, text, lib=LIB)]


@pytest.mark.parametrize("what", ACCEPTED)
def test_it_is_allowed(tmp_path, what):
    assert found(tmp_path, *ACCEPTED[what]) == []


def test_an_import_that_does_not_run_makes_no_partial_function():
    trees = {"rule": ast.parse(OWN_PARTIAL)}
    write_partials(trees)
    assert ast.dump(trees["rule"]) == ast.dump(ast.parse(OWN_PARTIAL))


@pytest.mark.parametrize("what", REFUSED)
def test_what_would_hide_behind_it_is_refused(tmp_path, what):
    rule, body, more = REFUSED[what]
    assert rule in found(tmp_path, body, more)
