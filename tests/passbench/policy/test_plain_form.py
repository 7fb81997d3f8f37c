"""What is written otherwise and means the same: parts of items, kernels under `if`, `super()`, guards as decorators;
and what would hide behind each of them."""

import pytest

from tests.passbench.policy.test_policy import IMPORTS, check, in_wrapper

BASE = "class One:\n    def __init__(self, a):\n        self.a = a\n    def get(self):\n        return self.a\n"
TWO = BASE + "class Two(One):\n    def __init__(self, a, b):\n        {}\n        self.b = b\n"
TWO += "    def get(self):\n        return {}\n"
IF = "if torch.cuda.is_available():\n    @triton.jit\n    def other(x_ptr, n, B: tl.constexpr = 4):\n        {}\n"
LAUNCHED = "other[(1,)](torch.empty_like(x), n)"
TRY = IF.replace("if torch.cuda.is_available()", "try") + "except ImportError:\n    pass\n"
DECORATED = "{}\n@guard\ndef guarded(x, y, route, k):\n    return x + y\n"
GUARD = "def guard(f):\n    def inner(*args):\n        return {}\n    return inner"
LOADS = "tl.inline_asm_elementwise('ld\\\n        .global', '=r,r', [n], tl.int32, True, 1)"
FALLBACK = "try:\n    from triton.language.extra import libdevice\n    tanh = libdevice.tanh\nexcept ImportError:\n"
FALLBACK += "    libdevice = tl.math\n    tanh = tl.math.tanh\n"
TANH = "{}" + IF.format("tl.store(x_ptr, tanh(n))")
LATE = "def late():\n    global libdevice\n    libdevice = torch\n    return 1\n"
STATIC = "class Top:\n    @{}\n    def f({}t, u=1):\n        return float(t)\n"
STATIC += "class Low(Top):\n    def run(self, t):\n        return super().f(t)\n"
HELD = "class Read:\n    def __call__(self, t):\n        return float(t)\nclass Top:\n    {}\n"
HELD += STATIC[STATIC.index("class Low") :]
ACCEPTED = {
    "a static method of a base": ("z = Low().run(n)", STATIC.format("staticmethod", "")),
    "items of a dict": ("for a, t in {'x': x}.items():\n    assert t.dim() < 9, f'{a}'", ""),
    "items of a variable": ("d = {'x': x}\nfor a, t in d.items():\n    assert t.dim() < 9, f'{a}'", ""),
    "its own base": ("z = Two(n, 2).get()", TWO.format("super().__init__(a)", "super().get() + 1")),
    "as it was written once": ("z = Two(n, 2).get()", TWO.format("super(Two, self).__init__(a)", "self.b")),
    "a kernel under if": (LAUNCHED, IF.format("tl.store(x_ptr, n)")),
    "a kernel with a word on it": (LAUNCHED, IF.format('"""One.\n\n        Two."""\n        tl.store(x_ptr, n)')),
    "a kernel under try": (LAUNCHED, TRY.format("tl.store(x_ptr, n)")),
    "an import that may fail": (LAUNCHED, FALLBACK + TRY.format("tl.store(x_ptr, tanh(n) + libdevice.exp(n))")),
    "a module that may lack": (LAUNCHED, "if tl is not None:\n" + IF[IF.index("    @") :].format("tl.store(x_ptr, n)")),
}
REFUSED = {
    "another function of two": ("rebinding", LAUNCHED, FALLBACK.replace("tl.math.tanh", "tl.exp")),
    "a module that is no libdevice": ("module_as_value", LAUNCHED, FALLBACK.replace("= tl.math\n", "= torch\n")),
    "a function that is no kernel's": ("kernel", LAUNCHED, TANH.format("if n:\n    tanh = torch.tanh\n")),
    "bound by a function": ("rebinding", "z = late()", FALLBACK + LATE),
    "a tensor in the first place": ("host_read", "for a, t in (('x', x), (x, 'y')):\n    z = f'{a}'", ""),
    "the second of two": ("host_read", "for a, t in (('x', x), ('y', y)):\n    z = f'{t}'", ""),
    "a value of a dict": ("host_read", "d = {'x': x}\nfor a, t in d.items():\n    z = f'{t}'", ""),
    "keys that a call made": ("host_read", "d = dict(zip([x], [1]))\nfor a, t in d.items():\n    z = f'{a}'", ""),
    "keys that came later": (
        "host_read",
        "d = {'x': 1}\nd.update([(x, 1)])\nfor a, t in d.items():\n    z = f'{a}'",
        "",
    ),
    "keys that were added": ("host_read", "d = {'x': 1}\nd |= [(x, 1)]\nfor a, t in d.items():\n    z = f'{a}'", ""),
    "keys by another name": (
        "container",
        "d = {'x': 1}\ne = d\ne.update([(x, 1)])\nfor a, t in d.items():\n    z = f'{a}'",
        "",
    ),
    "what a base got": ("host_read", "z = Two(x, 2).get()", TWO.format("super().__init__(a)", "float(self.a)")),
    "what a base returns": (
        "host_read",
        "z = Two(x, 2).get()",
        TWO.format("super().__init__(a)", "float(super().get())"),
    ),
    "one of several bases": (
        "forbidden_name",
        "z = 1",
        TWO.format("super().__init__(a)", "1") + "class Three(Two, One):\n    pass\n",
    ),
    "a base that is a parameter": (
        "forbidden_name",
        "z = Two(n, 2).get(One)",
        TWO.replace("get(self)", "get(self, One)").format("1", "super().get()"),
    ),
    "a class that is a parameter": (
        "forbidden_name",
        "z = Two(n, 2).get(One)",
        TWO.replace("get(self)", "get(self, Two)").format("1", "super(Two, self).get()"),
    ),
    "what a static method of a base gets": (
        "host_read",
        "z = Low().run(torch.relu(x))",
        STATIC.format("staticmethod", ""),
    ),
    "what a field of a base holds": ("forbidden_name", "z = Low().run(x)", HELD.format("f = Read()")),
    "what a property of a base returns": (
        "forbidden_name",
        "z = Low().run(x)",
        HELD.format("@property\n    def f(self):\n        return Read()"),
    ),
    "super() in a list": ("forbidden_name", "z = 1", TWO.format("self.a = a", "[super().get() for _ in (1,)]")),
    "an address under if": ("address", LAUNCHED, IF.format("tl.store(x_ptr, x_ptr.to(tl.int64))")),
    "a text that Triton reads otherwise": ("kernel", LAUNCHED, IF.format(LOADS)),
    "lines that begin before the kernel": ("kernel", LAUNCHED, IF.format("tl.store(x_ptr, (\n1))")),
    "one of two kernels": ("decorator", "z = 1", IF.format("tl.store(x_ptr, n)") + "else:\n    other = None\n"),
}


def found(tmp_path, body, more=""):
    return [(f.rule, f.message) for f in check(tmp_path, IMPORTS + in_wrapper(body) + "\n" + more)]


@pytest.mark.parametrize("what", ACCEPTED)
def test_it_is_allowed(tmp_path, what):
    assert found(tmp_path, *ACCEPTED[what]) == []


@pytest.mark.parametrize("what", REFUSED)
def test_what_would_hide_behind_it_is_refused(tmp_path, what):
    rule, body, more = REFUSED[what]
    assert rule in [name for name, _ in found(tmp_path, body, more)]


def returned(tmp_path, guard):
    text = in_wrapper("pass").replace("return wrapper\n", "return guarded\n") + "\n" + DECORATED.format(guard)
    return [f.rule for f in check(tmp_path, text)]


def test_a_guard_around_the_replacement(tmp_path):
    assert returned(tmp_path, GUARD.format("f(*args)")) == []
    assert returned(tmp_path, "def guard(f):\n    return f") == []


@pytest.mark.parametrize(
    ("guard", "rule"),
    [
        (GUARD.format("float(f(*args))"), "host_read"),
        (GUARD.format("args[0].add_(1)"), "in_place"),
        ("def guard(f):\n    return torch.relu", "replacement_func"),
        ("def guard(f):\n    f = torch.nn.functional.relu\n    return f", "replacement_func"),
    ],
)
def test_what_a_guard_does_itself(tmp_path, guard, rule):
    assert rule in returned(tmp_path, guard)


def test_a_kernel_in_a_function_is_told_its_place(tmp_path):
    text = "def make():\n    @triton.jit\n    def other(x_ptr, n):\n        tl.store(x_ptr, n)\n    return other\n"
    ((rule, message),) = found(tmp_path, "z = make()", text)
    assert (rule, message) == ("decorator", "write the kernel other at the top of the module, under a name of its own")
