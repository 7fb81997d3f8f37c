"""What names and fields are bound to when the pass runs, where the source only seems to say it."""

import pytest

from tests.passbench.policy.test_policy import check, in_wrapper

KERNEL = "@triton.jit\ndef {}(x_ptr, SIZE: tl.constexpr):\n    tl.store(x_ptr + tl.arange(0, SIZE), 0.0)\n"
NEVER = 'if torch.__version__ < "1":\n' + "".join(f"    {line}\n" for line in KERNEL.splitlines())
HANDLER = "try:\n    A = 1 // 0\nexcept ZeroDivisionError as {}:\n    A = 0\n"
DATA = (
    "import dataclasses\n@dataclasses.dataclass\nclass Base:\n    number: int = 1\n"
    "@dataclasses.dataclass\nclass Holding(Base):\n    held: object = None\n"
    'KINDS = {"a": Holding}\n'
)
LOOKS = "class A:\n    def at(self, a):\n        return float(a)\n"
OR_A_LAMBDA = (
    "def sums(t):\n    return t.sum()\n"
    "def use(x, n, {}):\n    if n > 9:\n        f = lambda t: 1\n    return float(f(x))\n"
)
REFUSED = {
    "a parameter or a lambda": (OR_A_LAMBDA.format("f"), "use(x, n, sums)", "host_read"),
    "a default or a lambda": (OR_A_LAMBDA.format("f=sums"), "use(x, n)", "host_read"),
    "a handler of the module": ("eval = 0\n" + HANDLER.format("eval"), "eval('1')", "rebinding"),
    "a handler and a class": ("class eval:\n    a = 1\n" + HANDLER.format("eval"), "eval('1')", "rebinding"),
    "a kernel in a block": (NEVER.format("exec"), "exec('1')", "rebinding"),
    "a kernel in a block that another calls": (
        NEVER.format("exec") + KERNEL.format("other").replace("0.0", "exec('1')"),
        "other[(1,)](out, 8)",
        "rebinding",
    ),
    "fields of a base": (DATA, "float(KINDS['a'](3, x.sum()).held)", "host_read"),
    "fields by an unpacked list": (DATA, "if Holding(*[3, x.sum()]).held:\n    n += 1", "host_read"),
    "fields by an unpacked dict": (DATA, "if Holding(**{'held': x.sum()}).held:\n    n += 1", "host_read"),
    "a static __init__": (
        "class A:\n    @staticmethod\n    def __init__(a, b):\n        float(b)\n",
        "A(3, x.sum())",
        "decorator",
    ),
    "a class behind a function": (
        "def one(a):\n    return a\nclass one:\n    def __init__(self, a):\n        self.b = float(a)\n",
        "one(x.sum())",
        "rebinding",
    ),
    "two classes": ("class A:\n    a = 1\nclass A:\n    a = 2\n", "n += A.a", "rebinding"),
    "two methods": (
        "class A:\n    def __init__(self, a):\n        self.b = a\n"
        "    def __init__(self, a):\n        self.b = float(a)\n",
        "A(x.sum())",
        "rebinding",
    ),
    "a decorator that makes __init__": (
        "import dataclasses\nclass A:\n    def __init__(self, a):\n        self.b = 1\n"
        "@dataclasses.dataclass\nclass B(A):\n    c: object\n",
        "float(B(x.sum()).c)",
        "host_read",
    ),
    "a base that is made of fields": (
        DATA + "class B(Base):\n    def __init__(self, a):\n        super().__init__(a)\n",
        "float(B(x.sum()).number)",
        "host_read",
    ),
    "a base's base": (LOOKS + "class B(A):\n    pass\n", "B.at(B(), x.sum())", "host_read"),
    "a class of a table": (LOOKS + 'KINDS = {"a": A}\n', "KINDS['a'].at(A(), x.sum())", "host_read"),
    "a class method": (
        LOOKS + "    @classmethod\n    def of(cls, a):\n        return cls.at(cls(), a)\n",
        "A.of(x.sum())",
        "host_read",
    ),
    "arguments that are collected": (
        "class A:\n    def at(self, *rest):\n        return float(rest[1])\nKINDS = {'a': A}\n",
        "KINDS['a'].at(A(), 3, x.sum())",
        "host_read",
    ),
    "a keyword of a positional parameter's name": (
        "def f(a, /, **rest):\n    return float(rest['a'])\n",
        "f(1, a=x.sum())",
        "host_read",
    ),
    "Python's order of bases": (
        "class Deep:\n    def __init__(self, a):\n        self.b = float(a)\nclass A(Deep):\n    pass\n"
        "class B:\n    def __init__(self, a):\n        self.b = a\nclass Both(A, B):\n    pass\n",
        "Both(x.sum())",
        "host_read",
    ),
    "an item of a tuple": ("", "if 3 in (x.sum(), 1):\n    n += 1", "host_read"),
    "an item of a list": ("", "n += [x.sum()].index(3)", "host_read"),
    "what __post_init__ sets": (
        "import dataclasses\n@dataclasses.dataclass\nclass A:\n    a: object = None\n"
        "    def __post_init__(self):\n        self.a = torch.ones(1)\n",
        "s = f'{A()}'",
        "host_read",
    ),
    "a tensor that a kernel is compiled for": ("", "kernel[(1,)](x, y, out, n, BLOCK=x.sum())", "host_read"),
    "another name of a kernel": (
        "def name(spec):\n    return 'Memset'\n"
        + KERNEL.format("other").replace("@triton.jit", "@triton.jit(repr=name)"),
        "other[(1,)](out, 8)",
        "hook",
    ),
    "a case": (
        "def same(a):\n    return a\n",
        "f = lambda a: 0\nmatch same:\n    case f:\n        pass\nif f(x.sum()):\n    n += 1",
        "host_read",
    ),
    "what a generator returns": (
        "KEPT = {}\ndef inner():\n    yield 1\n    return KEPT['a']\n"
        "def outer():\n    value = yield from inner()\n    float(value)\n",
        "KEPT['a'] = x.sum()\nfor _ in outer():\n    pass",
        "host_read",
    ),
    "what a generator does at its end": (
        "KEPT = {}\ndef late():\n    try:\n        yield 1\n    finally:\n        KEPT['a'] = KEPT['x'].sum()\n",
        "KEPT['x'] = x\nKEPT['late'] = late()\nnext(KEPT['late'])",
        "expression",
    ),
    "a context that a generator leaves open": (
        "def late():\n    with torch.inference_mode():\n        yield 1\n",
        "next(late())",
        "expression",
    ),
    "an operator that calls": (
        "class A:\n    def __init__(self, a, b):\n        self.c = float(a)\n",
        "torch.nn.functional.triplet_margin_with_distance_loss(x, y, y, distance_function=A)",
        "forbidden_call",
    ),
}  # fmt: skip
HONEST = {
    "a generator": (
        "def blocks():\n    for block in (64, 128):\n        try:\n            m = block * 2\n        finally:\n"
        "            m = block\n        yield m\n",
        "for m in blocks():\n    n += m",
    ),
    "a handler": (HANDLER.format("error"), "n += A"),
    "a kernel in a block": (NEVER.format("other"), "if n < 0:\n    other[(1,)](out, 8)"),
    "sizes in fields": (DATA, "n += int(KINDS['a'](3, x.shape[0]).held) + Holding(*[1, n]).held"),
    "bases with sizes": (
        "class A:\n    def __init__(self, block):\n        self.block = block\n"
        "class B(A):\n    def __init__(self, a, block):\n        super().__init__(block)\n        self.kept = a\n",
        "n += int(B(x, 64).block)",
    ),
    "a built-in's name for a kernel": (KERNEL.format("sum"), "sum[(1,)](out, 8)"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_name_or_a_field_is_bound_to_is_known(tmp_path, what):
    before, body, rule = REFUSED[what]
    text = in_wrapper(body).replace("\ndef pattern", f"\n{before}\ndef pattern", 1)
    assert rule in {f.rule for f in check(tmp_path, text)}


@pytest.mark.parametrize("what", HONEST)
def test_honest_bindings(tmp_path, what):
    before, body = HONEST[what]
    assert check(tmp_path, in_wrapper(body).replace("\ndef pattern", f"\n{before}\ndef pattern", 1)) == []


def test_the_graph_calls_no_method_that_makes_an_instance(tmp_path):
    text = in_wrapper("").replace("return wrapper", "return MADE.__init__", 1)
    made = "class Maker:\n    def __init__(self, *values):\n        self.values = values\nMADE = Maker()\n"
    assert "replacement_func" in {f.rule for f in check(tmp_path, text + made)}
