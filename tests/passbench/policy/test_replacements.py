"""What `replacement_func` may return, and what is known of what the graph then hands to it."""

import json

import pytest

from passbench.bench import Bench
from passbench.contract import NAMES_FILE
from tests.passbench.attacks.attack_samples import add_relu
from tests.passbench.attacks.run_attacks import SETTINGS
from tests.passbench.policy.test_policy import check

HEAD = """
import functools
import torch
import triton
import triton.language as tl

def pattern(x, y):
    return torch.relu(torch.add(x, y))

def replacement_args(x, y):
    return (x, y, 64)

@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + i, mask=i < n) + tl.load(y_ptr + i, mask=i < n)
    tl.store(out_ptr + i, tl.maximum(total, 0.0) * scale, mask=i < n)

def launch(x, y, block, scale=1.0):
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), block),)](x, y, out, x.numel(), scale, BLOCK=block)
    return out

"""
HONEST = {
    "lambda": "def replacement_func():\n    return lambda x, y, block: launch(x, y, block, 1.0)\n",
    "lambda_in_its_place": "replacement_func = lambda: launch\n",
    "lambda_of_the_module": "f = lambda x, y, block: launch(x, y, block)\n\ndef replacement_func():\n    return f\n",
    "partial": "def replacement_func():\n    return functools.partial(launch, scale=1.0)\n",
    "partial_of_a_partial": """
def scaled(scale, x, y, block):
    return launch(x, y, block, scale)

ONE = functools.partial(scaled, 1.0)

def replacement_func():
    return functools.partial(ONE)
""",
    "defined_inside": '''
def replacement_func():
    """The fused function."""
    scale = 1.0

    def fused(x, y, block):
        return launch(x, y, block, scale)

    return fused
''',
    "made_by_a_function": """
def make(scale, warps):
    @functools.wraps(launch)
    def fused(x, y, block):
        out = torch.empty_like(x)
        n = x.numel()
        kernel[(triton.cdiv(n, block),)](x, y, out, n, scale, BLOCK=block, num_warps=warps)
        return out

    return fused

def replacement_func():
    return make(1.0, warps=2)
""",
    "handed_through": """
def checked(function, low):
    if low > 3:
        raise ValueError("low")
    return function

def replacement_func():
    return checked(launch, 2)
""",
    "static_method": """
class Fused:
    SCALE = 1.0

    @staticmethod
    def run(x, y, block):
        return launch(x, y, block, Fused.SCALE)

def replacement_func():
    return Fused.run
""",
    "class_method": """
class Fused:
    SCALE = 1.0

    @classmethod
    def run(cls, x, y, block):
        return launch(x, y, block, cls.SCALE)

def replacement_func():
    return Fused.run
""",
    "instance": """
class Fused:
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, x, y, block):
        return launch(x, y, block, self.scale)

FUSED = Fused(1.0)

def replacement_func():
    return FUSED
""",
    "method_of_an_instance": """
class Fused:
    def __init__(self, scale):
        self.scale = scale

    def forward(self, x, y, block):
        return launch(x, y, block, self.scale)

def replacement_func():
    return Fused(1.0).forward
""",
    "autograd_function": """
class Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, block):
        return launch(x, y, block)

def replacement_func():
    return Fused.apply
""",
    "by_a_condition": """
def eager(x, y, block):
    return torch.relu(x + y)

FAST = launch if triton.__version__ >= "2.0.0" else eager

def replacement_func():
    if hasattr(tl, "program_id"):
        return FAST
    return eager
""",
}


@pytest.mark.parametrize("name", HONEST)
def test_ways_to_name_a_replacement(tmp_path, name):
    assert check(tmp_path, HEAD + HONEST[name]) == []


def test_a_replacement_of_a_sibling(tmp_path):
    text = (
        HEAD.replace("def launch", "def unused") + "import shared\n\ndef replacement_func():\n    return shared.FUSED\n"
    )
    body = HEAD[HEAD.index("@triton.jit") :] + HONEST["instance"].partition("\ndef replacement_func")[0]
    assert check(tmp_path, text, shared="import torch\nimport triton\nimport triton.language as tl\n\n" + body) == []


@pytest.fixture(scope="module")
def bench():
    with Bench("cpu", SETTINGS["cpu"]) as one:
        yield one


@pytest.mark.parametrize("name", HONEST)
def test_each_runs(bench, tmp_path, name):
    (tmp_path / NAMES_FILE).write_text(json.dumps(["rule"]))
    (tmp_path / "rule.py").write_text(HEAD + HONEST[name])
    for result in bench.run(add_relu(), "pass", tmp_path):
        assert (result.status, result.matches) == ("ok", 1), result.reason


GIVES = "\n\ndef replacement_func():\n    return "
READS = "(x, y, block):\n        return launch(x, y, block) if float(x) > 0 else y"
REFUSED = {
    "lambda_that_reads": ("def replacement_func():\n    return lambda x, y, block: float(x) * y\n", "host_read"),
    "defined_inside_and_reads": (f"def replacement_func():\n    def f{READS}\n    return f\n", "host_read"),
    "made_and_reads": (f"def make():\n    def f{READS}\n    return f{GIVES}make()\n", "host_read"),
    "static_and_reads": (
        f"class A:\n    @staticmethod\n    def f{READS}\n\ndef replacement_func():\n    return A.f\n", "host_read"
    ),
    "instance_that_reads": (
        "class A:\n    def __call__(self, x, y, block):\n        return y * float(x)\n\n"
        "def replacement_func():\n    return A()\n",
        "host_read",
    ),
    "method_that_reads": (
        "class A:\n    def go(self, x, y, block):\n        return y * float(x)\n\n"
        "def replacement_func():\n    return A().go\n",
        "host_read",
    ),
    "applied_and_reads": (
        "class A(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x, y, block):\n"
        "        return y * float(x)\n\ndef replacement_func():\n    return A.apply\n",
        "host_read",
    ),
    "partial_that_shifts": (
        "def f(block, x, y, _):\n    return y * float(x)\n\n"
        "def replacement_func():\n    return functools.partial(f, 1)",
        "host_read",
    ),
    "partial_that_takes_the_place": (
        "def f(block, _, x, y):\n    return y * float(x)\n\n"
        "G = functools.partial(f, 1)\n\ndef replacement_func():\n    return functools.partial(G, 2)\n",
        "host_read",
    ),
    "chosen_and_reads": (
        "def f(x, y, block):\n    return y * float(x)\n\nF = launch if hasattr(tl, 'dot') else f\n\n"
        "def replacement_func():\n    return F\n",
        "host_read",
    ),
    "made_twice": (
        "def make():\n    def f(x, y, block):\n        return y * float(block)\n    return f\n\n"
        f"@torch.fx.wrap\ndef g(x, y, block):\n    return make()(x, y, torch.ones(1)){GIVES}make()\n",
        "host_read",
    ),
    "lambda_of_an_operator": ("replacement_func = lambda: torch.relu\n", "replacement_func"),
    "lambda_in_its_place_and_another": (
        "replacement_func = lambda: launch\nreplacement_func = lambda: print\n", "replacement_func"
    ),
    "operator_in_a_partial": (
        "def replacement_func():\n    return functools.partial(torch.add, alpha=2)\n", "replacement_func"
    ),
    "operator_by_a_condition": (
        "def replacement_func():\n    return launch if hasattr(tl, 'dot') else torch.add\n", "replacement_func"
    ),
    "operator_by_a_variable": (
        "F = launch\nF = torch.nn.functional.relu\n\ndef replacement_func():\n    return F\n", "replacement_func"
    ),
    "operator_by_nonlocal": (
        "def replacement_func():\n    f = launch\n    def g():\n        nonlocal f\n        f = torch.add\n    g()\n"
        "    return f\n",
        "replacement_func",
    ),
    "operator_by_a_loop": (
        "F = launch\nfor F in [torch.nn.functional.relu]:\n    pass\n\ndef replacement_func():\n    return F\n",
        "replacement_func",
    ),
    "operator_handed_through": (
        "def same(f):\n    return f\n\ndef replacement_func():\n    return same(torch.add)\n", "replacement_func"
    ),
    "kernel": ("def replacement_func():\n    return kernel\n", "replacement_func"),
    "instance_without_call": (
        "class A:\n    def run(self):\n        return 1\n\ndef replacement_func():\n    return A()", "replacement_func"
    ),
    "pattern": ("def replacement_func():\n    return lambda x, y, block: pattern(x, y)\n", "forbidden_call"),
    "nothing": ("def replacement_func():\n    if tl.dot:\n        return launch\n    return", "replacement_func"),
    "decorated": ("@functools.lru_cache\ndef replacement_func():\n    return launch\n", "replacement_func"),
    "code_inside": ("def replacement_func():\n    eval('1')\n    return launch\n", "forbidden_name"),
    "called": ("def replacement_func():\n    return launch\n\nF = replacement_func()\n", "forbidden_call"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_replacement_may_not_be(tmp_path, name):
    text, rule = REFUSED[name]
    assert rule in {f.rule for f in check(tmp_path, HEAD + text)}


def test_numbers_of_a_lambda_stay_numbers(tmp_path):
    text = "def replacement_func():\n    return lambda x, y, block: launch(x, y, block, y if block else 2)\n"
    assert "address" in {f.rule for f in check(tmp_path, HEAD + text)}
