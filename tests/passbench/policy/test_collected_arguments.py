"""What `*args` of a function holds, item by item, as its calls tell."""

import pytest

from tests.passbench.policy.test_policy import HEAD, WRAPPER, check

TENSORS = HEAD.replace("torch.relu(x + y)", "torch.relu(torch.add(x, y))")
ROUTED = """
def launch(x, y, n, scale=1.0):
    out = torch.empty_like(x)
    kernel[(triton.cdiv(n, 64),)](x, y, out, n, BLOCK=64)
    return out

@torch.fx.wrap
def wrapper(*args):
    {body}
"""
HONEST = {
    "route_last": "route = args[-2]"
    '\n    if route == "a" or len(args) == 4:\n        return launch(*args[:2], args[-1])\n'
    '    raise ValueError(f"{route} {args[2]}")',
    "taken_apart": "x, y, route, k = args\n    n = k * 2 if route else k\n    return launch(x, y, n)",
    "taken_apart_from_the_end": ""
    "*tensors, route, k = args\n    assert route == 'route'\n    x, y = tensors\n    return launch(x, y, k)",
    "handed_on": "return inner(*args)\n\ndef inner(x, *rest):\n    y, route, k = rest\n    return launch(x, y, int(k))",
    "captured": "from passbench.launch import captured\n    return captured(steps, *args)\n\n"
    "def steps(x, y, route, k):\n    return launch(x, y, int(k))",
    "mapped": "args = tuple(a.contiguous() if torch.is_tensor(a) else a for a in args)"
    "\n    return inner(*args)\n\ndef inner(x, y, route, k):\n    return launch(x, y, int(k))",
    "mapped_by_a_function": "new = [plain(a) for a in args]\n    return inner(*new)\n\n"
    "def plain(a):\n    return a.contiguous() if isinstance(a, torch.Tensor) else a\n\n"
    "def inner(x, y, route, k):\n    return launch(x, y, int(k))",
    "of_a_method": "return PLAN(*args)\n\n"
    "class Plan:\n    def __call__(self, x, *args):\n        return self.start(x, *args, scale=2)\n\n"
    "    def start(self, x, *rest, scale):\n        y, route, k = rest\n        return launch(x, y, int(k) * scale)\n\n"
    "PLAN = Plan()",
}


@pytest.mark.parametrize("name", HONEST)
def test_numbers_among_them_are_numbers(tmp_path, name):
    assert check(tmp_path, TENSORS + ROUTED.format(body=HONEST[name])) == []


F = "def f(*a):\n    return {}\n\n"
MAPPED = "def g(b, d):\n    return float(b)\n\ndef f(*a):\n    {1}\n    c = {0}\n    return g(*c)\n\n"
KEEP = "return t.half() if isinstance(t, torch.Tensor) else t"
REFUSED = {
    "read": (F.format("float(a[1])"), "f(n, x)"),
    "read_from_the_end": (F.format("float(a[-1])"), "f(n, x)"),
    "read_in_another_call": (F.format("float(a[0])"), "f(n, x)\n    f(x, n)"),
    "read_in_a_longer_call": (F.format("float(a[-2])"), "f(n, n)\n    f(n, x, n)"),
    "read_of_a_part": (F.format("float(sum(a[1:]))"), "f(n, x)"),
    "starred_list": (F.format("float(a[1])"), "f(*[n, x])"),
    "starred_part": (F.format("g(*a[1:])") + "def g(b):\n    return float(b)\n", "f(n, x)"),
    "starred_twice": (F.format("g(*a, *a)") + "def g(b, c, d, e):\n    return float(d)\n", "f(x, n)"),
    "behind_a_part": (F.format("g(*a[:1], a[1])") + "def g(b, c):\n    return float(c)\n", "f(n, x)"),
    "as_a_value": (F.format("float(a[0])"), "f(n)\n    for h in [f]:\n        h(x)"),
    "by_map": (F.format("float(a[0])"), "f(n)\n    z = list(map(f, [x]))"),
    "by_a_partial": ("import functools\n" + F.format("float(a[1])"), "f(n, n)\n    z = functools.partial(f, n)(x)"),
    "by_captured": (
        "from passbench.launch import captured\n" + F.format("float(a[1])"),
        "captured(f, n, x)",
    ),
    "taken_apart": ("def f(*a):\n    b, *c = a\n    return float(c[0])\n\n", "f(n, x)"),
    "taken_apart_at_the_end": ("def f(*a):\n    *b, c = a\n    return float(c)\n\n", "f(n, x)"),
    "bound_again": ("def f(*a):\n    a = a[::-1]\n    return float(a[0])\n\n", "f(n, x)"),
    "bound_by_a_loop": ("def f(*a):\n    for a in [a[::-1]]:\n        pass\n    return float(a[0])\n\n", "f(n, x)"),
    "bound_by_nonlocal": (
        "def f(*a):\n    def g():\n        nonlocal a\n        a = a[::-1]\n    g()\n    return float(a[0])\n\n",
        "f(n, x)",
    ),
    "mapped": (MAPPED.format("[b if isinstance(b, torch.Tensor) else a[1] for b in a]", ""), "f(n, x)"),
    "mapped_the_other_way": (MAPPED.format("[y if torch.is_tensor(y) else t for y in a]", "t = a[1]"), "f(n, x)"),
    "mapped_and_reversed": (
        MAPPED.format("[b for b in a]", "").replace("return g", "c.reverse()\n    return g"),
        "f(n, x)",
    ),
    "mapped_by_a_function": (
        MAPPED.format("[keep(b) for b in a]", "def keep(t):\n        t = a[1]\n        " + KEEP),
        "f(n, x)",
    ),
    "shadowed": ("def f(*a):\n    def g(a):\n        return float(a[0])\n    return g((a[1],))\n\n", "f(n, x)"),
    "reversed": (F.format("float(a[::-1][0])"), "f(n, x)"),
    "method": ("class A:\n    def go(self, *a):\n        return float(a[1])\n\n", "A().go(n, x)"),
    "method_of_its_class": (
        "class A:\n    def go(self, *a):\n        return float(a[0])\n\n",
        "A().go(n)\n    A.go(A(), x)",
    ),
    "method_as_a_value": (
        "class A:\n    def go(self, *a):\n        return float(a[0])\n\n",
        "A().go(n)\n    h = A().go\n    h(x)",
    ),
    "instance": (
        "class A:\n    def __call__(self, *a):\n        return float(a[0])\n\n",
        "b = A()\n    b(n)\n    b(x)",
    ),
    "base": (
        "class A:\n    def go(self, *a):\n        return float(a[0])\n\n"
        "class B(A):\n    def go(self, *a):\n        return super().go(*a[::-1])\n\n",
        "B().go(x, n)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_tensors_among_them_are_tensors(tmp_path, name):
    text, body = REFUSED[name]
    assert "host_read" in {f.rule for f in check(tmp_path, TENSORS + text + WRAPPER.format(body=body))}
