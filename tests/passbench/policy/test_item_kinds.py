"""Items of lists that a function has made of its own tensors, fields of named tuples by `_asdict` and `_replace`, and
errors that a pass may catch."""

import pytest

from tests.passbench.policy.test_policy import IMPORTS, check, in_wrapper

MADE = "o = [torch.empty_like(x) for _ in range(2)]\n"
PAIR = "from typing import NamedTuple\nclass Pair(NamedTuple):\n    a: int = 1\n    b: int = 2\n"
DATA = "import dataclasses\n@dataclasses.dataclass\nclass Data:\n    a: int = 1\n"
GIVES = "def f(t, n):\n    return t, torch.empty_like(t), n\n"
LATER = "def later(t, n):\n    return {'t': t, 'n': n}\n"
ACCEPTED = {
    "an item": (MADE + "o[0].zero_()", ""),
    "items in a loop": (MADE + "for t in o:\n    t.zero_()", ""),
    "items beside others": (MADE + "for t, s in zip(o, (1, 2)):\n    t.fill_(s)", ""),
    "items of a tuple": ("o = (torch.empty_like(x), x + y)\nfor n, t in enumerate(o):\n    t.zero_()", ""),
    "items of a list that is launched and returned": (MADE + "o[1].zero_()\nk = len(o)\nreturn o", ""),
    "a number beside a list times a tensor": ("d = {'a': [0], 'b': 1}\nz = d['b'] * torch.relu(x)", ""),
    "a number of a table times a tensor": ("z = (2, 3)[n] * torch.relu(x) * D[0][1]", "D = ([0, 2], (1,))\n"),
    "numbers beside tensors": (
        "o = {'t': x + y, 'n': n, 's': 'a'}\nz = math.ceil(o['n']) * f'{o[\"s\"]}'\no['t'].zero_()\nf(**o, k=1)",
        "def f(t, n, s, k):\n    return k\n",
    ),
    "numbers beside tensors of a function": (
        "o = f(x, n)\nz = math.ceil(o[-1] / o[2])\na, b, c = o\no[1].zero_()",
        GIVES,
    ),
    "numbers of a function that is defined later": ("o = later(x, n)\nz = math.ceil(o['n'])", LATER),
    "a named tuple as keywords": ("z = dict(**Pair(n)._asdict())", PAIR),
    "a named tuple with another field": ("z = 1 if Pair(n)._replace(a=2).a > 1 else 2", PAIR),
    "a data class as a tuple": ("a = dataclasses.astuple(Data(n))\nz = 1 if a[0] > 1 else 2", DATA),
    "an import that fails": ("try:\n    import math\n    z = True\nexcept:\n    z = False", ""),
    "any error, raised again": ("try:\n    z = x + y\nexcept:\n    print('no')\n    raise", ""),
    "too few resources": ("try:\n    z = x + y\nexcept triton.OutOfResources:\n    z = y + x", ""),
    "a type of numbers": ("import numbers\nz = isinstance(k, numbers.Number)", ""),
    "the number of a device": ("d = x.device\nz = d.index == 0 or [1, 2].index(n)", ""),
    "whether it is compiled": ("z = torch.compiler.is_compiling()", ""),
}
REFUSED = {
    "a list of a dict times a tensor": ("host_read", "d = {'a': [0], 'b': 1}\nz = d['a'] * torch.relu(x)", ""),
    "a list of a table times a tensor": ("host_read", "z = D[n] * torch.relu(x)", "D = {1: [0], 2: 3}\n"),
    "a list within a list times a tensor": ("host_read", "z = torch.relu(x) * [[[0]]][0][-1]", ""),
    "a named tuple times a tensor": ("host_read", "z = Pair(1) * torch.relu(x)", PAIR),
    "an input in a list": ("in_place", "o = [torch.empty_like(x), x]\no[n].zero_()", ""),
    "an input by its place": ("in_place", "o = [torch.empty_like(x), x]\no[1].zero_()", ""),
    "an input by its key": ("in_place", "o = {'a': torch.empty_like(x), 'b': x}\no['b'].zero_()", ""),
    "a tensor where a function returns it": ("host_read", "o = f(torch.relu(x), n)\nz = int(o[0])", GIVES),
    "a tensor put under a key": ("host_read", "o = {'a': n}\no['a'] = torch.relu(x)\nz = int(o['a'])", ""),
    "a tensor put in by another name": (
        "container", "o = {'a': n}\np = o\np['a'] = torch.relu(x)\nz = int(o['a'])", ""
    ),
    "a tensor put in by a function within": (
        "host_read", "o = [n]\ndef g():\n    o[0] = torch.relu(x)\ng()\nz = int(o[0])", ""
    ),
    "a list that a function keeps": (
        "container", "o = f(n)\nKEPT[0][0] = torch.relu(x)\nz = int(o[0])",
        "KEPT = []\ndef f(n):\n    o = [n]\n    KEPT.append(o)\n    return o\n",
    ),
    "a list that a decorator keeps": (
        "container", "o = f(n)\nf(n)[0] = torch.relu(x)\nz = int(o[0])",
        "@functools.lru_cache\ndef f(n):\n    return [n]\n",
    ),
    "a list of a function's times a tensor": ("host_read", "o = f([1], n)\nz = torch.relu(x) * o[0]", GIVES),
    "an input that comes later": ("in_place", "o = [torch.empty_like(x)]\no.append(x)\no[1].zero_()", ""),
    "an input put in": ("in_place", MADE + "o[0] = x\no[0].zero_()", ""),
    "an input put in by another name": ("in_place", MADE + "p = o\np[0] = x\no[0].zero_()", ""),
    "an input put in by a function": ("in_place", MADE + "f(o, x)\no[0].zero_()", "def f(o, t):\n    o[0] = t\n"),
    "an input put in by a function within": ("in_place", MADE + "def g():\n    o[0] = x\ng()\no[0].zero_()", ""),
    "another list": ("in_place", MADE + "if n:\n    o = [x]\no[0].zero_()", ""),
    "a longer list": ("in_place", MADE + "o += [x]\no[2].zero_()", ""),
    "a list of views": ("in_place", "o = [t.view(-1) for t in (x, y)]\no[0].zero_()", ""),
    "a list that is handed out": (
        "in_place", "KEPT.append(1)\nz = f(x)\nz[0] = x\nKEPT[1]()",
        "KEPT = []\ndef f(t):\n    o = [torch.empty_like(t)]\n    def g():\n        o[0].zero_()\n"
        "    KEPT.append(g)\n    return o\n",
    ),
    "a tensor in another field": ("host_read", "z = float(Pair(1)._replace(a=x).a)", PAIR),
    "a tensor by its field's name": ("host_read", "z = float(Pair(x)._asdict()['a'])", PAIR),
    "fields of what has none": ("private_name", "z = x._asdict()", PAIR),
    "fields where there are no named tuples": ("private_name", "z = k._asdict()", ""),
    "a tensor in a data class": ("host_read", "z = float(dataclasses.astuple(Data(x))[0])", DATA),
    "a list's method as a value": ("forbidden_attribute", "f = [1, 2].index\nz = f(x)", ""),
    "a range's method as a value": ("forbidden_attribute", "r = range(9)\nf = r.index\nz = f(x)", ""),
    "any error": ("statement", "try:\n    z = x + y\nexcept:\n    z = 1", ""),
    "any error, raised at times": (
        "statement", "try:\n    z = x + y\nexcept:\n    if n:\n        return x\n    raise", "",
    ),
    "any error beside an import": ("statement", "try:\n    import math\n    z = x + y\nexcept:\n    z = 1", ""),
    "the text of a library's error": (
        "host_read", "try:\n    z = x + y\nexcept triton.OutOfResources as e:\n    z = str(e)", "",
    ),
}  # fmt: skip


def found(tmp_path, body, more):
    return [f.rule for f in check(tmp_path, IMPORTS + in_wrapper(body) + "\n" + more)]


@pytest.mark.parametrize("what", ACCEPTED)
def test_it_is_allowed(tmp_path, what):
    assert found(tmp_path, *ACCEPTED[what]) == []


@pytest.mark.parametrize("what", REFUSED)
def test_what_would_hide_behind_it_is_refused(tmp_path, what):
    rule, body, more = REFUSED[what]
    assert rule in found(tmp_path, body, more)
