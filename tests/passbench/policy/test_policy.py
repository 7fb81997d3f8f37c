import cProfile
import json

import pytest

from passbench.contract import NAMES_FILE, PassFiles
from passbench.policy.check import MAX_SOURCE, check_dir, check_files
from tests.passbench.samples import PASSES

HEAD = """
import math
import torch
import triton
import triton.language as tl

def pattern(x, y):
    return torch.relu(x + y)

def replacement_args(x, y):
    return (x, y, "route", 2)

@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)

def replacement_func():
    return wrapper
"""
IMPORTS = "import functools\nimport inspect\nimport operator\nimport os\nimport sys\nimport time\n"
BOX = """
class Box:
    def __init__(self, content):
        self.content = content

    def keep(self, content):
        self.content = content
"""
WRAPPER = """
@torch.fx.wrap
def wrapper(x, y, route, k):
    out = torch.empty_like(x)
    n = x.numel()
    {body}
    kernel[(triton.cdiv(n, 256),)](x, y, out, n, BLOCK=256)
    return out
"""


def check(tmp_path, text, **others):
    (tmp_path / NAMES_FILE).write_text(json.dumps(["rule"]))
    (tmp_path / "rule.py").write_text(text)
    for name, content in others.items():
        (tmp_path / f"{name}.py").write_text(content)
    return check_dir(tmp_path)


def in_wrapper(body: str) -> str:
    return HEAD + WRAPPER.format(body=body.replace("\n", "\n    "))


FIXTURES = [p.name for p in sorted(PASSES.iterdir())]


@pytest.mark.parametrize("name", FIXTURES)
def test_fixtures(name):
    rules = [f.rule for f in check_dir(PASSES / name)]
    assert rules == (["host_read"] if name == "reads_values" else [])


HONEST_BODIES = {
    "repeated": "a = [0] * n\nb = a * k\nfactor = n\nz = factor * x * k",
    "list_that_becomes_a_tensor": "a = [x, x]\na = torch.stack(a)\na = a * x.sum()\na *= n",
    "sizes": "m = x.shape[0] * x.stride(-1) // 2 + math.ceil(n / 7) - min(n, k) ** 2",
    "route": 'if route == "gelu":\n    n = n + 1\nelif k > 1 and y is not None:\n    n += 0',
    "views": "x = x.contiguous().view(-1).transpose(0, 0)[: n]",
    "lambda_that_computes": "f = lambda a, b: a * b\nz = f(x, y)",
    "grid_lambda": 'grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)\nkernel[grid](x, y, out, n, BLOCK=64)',
    "grid_def": 'def grid(meta):\n    return (n // meta["BLOCK"] + 1,)\nkernel[grid](x, y, out, n, BLOCK=64)',
    "zeros": "acc = torch.zeros((n,), dtype=torch.float32, device=x.device)\nacc.zero_()",
    "several_kernels": "kernel[(1,)](x, y, out, n, BLOCK=16, num_warps=4)\nkernel[(1,)](out, y, out, n, BLOCK=16)",
    "config_by_shape": "block, w = {1: (64, 4)}.get(x.dim(), (1, 8))\nkernel[(n // block,)](x, y, out, n, BLOCK=block)",
    "device_guard": "with torch.cuda.device(x.device):\n    kernel[(1,)](x, y, out, n, BLOCK=16)",
    "checks": 'assert x.is_contiguous(), f"{x.shape}"\nif x.dtype != torch.float32:\n    raise TypeError("float32")',
    "loops": "for size in x.shape:\n    n = max(n, size)\nsizes = [s * 2 for s in x.size() if s > 1]",
    "itemsize": "bits = x.element_size() * 8 + torch.finfo(x.dtype).bits",
}


@pytest.mark.parametrize("name", HONEST_BODIES)
def test_honest_wrappers(tmp_path, name):
    assert check(tmp_path, in_wrapper(HONEST_BODIES[name])) == []


HONEST_MODULES = {
    "multiprocessors": """
_COUNTS = {}
def multiprocessors(device):
    if device not in _COUNTS:
        _COUNTS[device] = torch.cuda.get_device_properties(device).multi_processor_count
    return _COUNTS[device]
""" + WRAPPER.format(body="programs = min(n, 4 * multiprocessors(x.device))"),
    "scratch": """
_SCRATCH = {}
def scratch(x):
    key = (x.shape, x.dtype)
    if key not in _SCRATCH:
        _SCRATCH[key] = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    return _SCRATCH[key]
""" + WRAPPER.format(body="kernel[(1,)](x, y, scratch(x), n, BLOCK=16)"),
    "autotune": """
@triton.autotune(configs=[triton.Config({"BLOCK": b}, num_warps=w) for b in (64, 128) for w in (2, 4)], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def tuned(x_ptr, out_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        value = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [tl.load(x_ptr + i)], dtype=tl.int32,
                                          is_pure=True, pack=1)
        tl.atomic_add(out_ptr + i, value.to(tl.float32), mask=i < n)
""" + WRAPPER.format(body='tuned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)'),
    "libdevice": """
from triton.language.extra import libdevice
try:
    from triton.language.math import tanh
except ImportError:
    from triton.language.extra.libdevice import tanh
SCALE: tl.constexpr = tl.constexpr(2.0)
TYPES = {torch.float16: tl.float16, torch.float32: tl.float32}

@triton.jit
def torch_gelu(x):  # cache
    return tanh(x) * libdevice.rsqrt(x) * SCALE

@triton.jit
def other(x_ptr, out_ptr):
    tl.store(out_ptr, torch_gelu(tl.load(x_ptr)))
""" + WRAPPER.format(body="other[(1,)](x, out)"),
    "tuple_outputs": """
@torch.fx.wrap
def wrapper(x: torch.Tensor, y: torch.Tensor, route: str, k: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    first, second = torch.empty_like(x), torch.empty_like(y)
    outputs = (first, second)
    kernel[(1,)](x, y, outputs[0], k, BLOCK=16)
    return outputs
""",
    "cheap_launches": """
from passbench.launch import Launch
PLANS = {(4,): (Launch(kernel, (1,), n=4, BLOCK=16, num_warps=1), 2)}
single = Launch(kernel, (2, 1), BLOCK=16)
""" + WRAPPER.format(body="launch, size = PLANS[x.shape]\n    launch(x, y, out)\n    single(x, y, out, n)"),
    "launches_of_two_kernels": """
from passbench.launch import Launch
@triton.jit
def norm(x_ptr, out_ptr, columns):
    tl.store(out_ptr, tl.rsqrt(tl.load(x_ptr) / columns))
LAUNCHES = {1: Launch(norm, (1,), columns=4), 2: Launch(kernel, (1,), n=4, BLOCK=16)}
""" + WRAPPER.format(body="LAUNCHES[1](x, out)\n    LAUNCHES[2](x, y, out)"),
    "dispatch": """
def small(x, out):
    kernel[(1,)](x, x, out, x.numel(), BLOCK=16)
ROUTES = {"route": small}
""" + WRAPPER.format(body="ROUTES[route](x, out)"),
    "named_tuple_by_key": """
from typing import NamedTuple
class Job(NamedTuple):
    source: torch.Tensor
    times: int = 2
""" + WRAPPER.format(body="job = Job(source=x, times=3); z = [job.source.view(-1) for _ in range(job.times)]"),
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST_MODULES)
def test_honest_modules(tmp_path, name):
    assert check(tmp_path, HEAD + HONEST_MODULES[name]) == []


def test_a_shared_helper_is_checked_like_the_rest(tmp_path):
    helper = "import torch\ndef combine(x, w):\n    return {}\n"
    rule = HEAD.replace("import math", "from helper import combine") + WRAPPER.format(body="z = combine(x, y)")
    assert check(tmp_path, rule, helper=helper.format("x.view(-1)")) == []
    (finding,) = check(tmp_path, rule, helper=helper.format("float(x)"))
    assert (finding.rule, finding.file, finding.line) == ("host_read", "helper.py", 3)


REFUSED_BODIES = {
    "through_tuple": ("pair = (x, y)\nz = float(pair[0])", "host_read"),
    "through_loop": ("for t in [x, y]:\n    t = int(t)", "host_read"),
    "through_starred": ("a, *rest = x, y, x\nz = bool(rest[0])", "host_read"),
    "through_dict": ("d = {}\nd[0] = x\nz = float(d[0])", "host_read"),
    "through_setdefault": ("d = {}\nd.setdefault(0, x)\nz = float(d.get(0))", "host_read"),
    "through_list": ("d = []\nd.append(x)\nz = float(d.pop())", "host_read"),
    "through_nested": ("def f(a):\n    return float(a)\nz = f(x)", "host_read"),
    "through_keyword": ("def f(a=1):\n    return float(a)\nz = f(a=x)", "host_read"),
    "through_walrus": ("z = float((w := x))", "host_read"),
    "through_comprehension": ("z = [float(t) for t in (x, y)]", "host_read"),
    "through_view": ("z = float(x.view(-1))", "host_read"),
    "through_operator": ("z = float(x @ y + 1)", "host_read"),
    "through_library": ("z = float(torch.relu(x))", "host_read"),
    "through_table": ("def f(a):\n    return float(a)\nz = {0: f}[0](x)", "host_read"),
    "through_key_lambda": ("z = sorted([2, 1], key=lambda v: (v * x).sum())", "host_read"),
    "through_key_of_tensors": ("z = max([x, y], key=lambda t: t.sum())", "host_read"),
    "through_key_of_torch": ("z = [x, y]\nz = min(z, key=torch.sum)", "host_read"),
    "through_truth": ("z = operator.truth(x.sum())", "host_read"),
    "through_contains": ("z = operator.contains([x.sum()], 3)", "host_read"),
    "through_reduce": ("z = functools.reduce(max, [x, y])", "host_read"),
    "through_reduce_of_pairs": ("z = functools.reduce(min, [(x, 1)], (y, 2))", "host_read"),
    "through_partial": ("f = functools.partial(max, 1)\nz = f(x)", "forbidden_name"),
    "through_lambda": ("f = lambda a, b: float(a) * b\nz = f(x, y)", "host_read"),
    "lambda_in_list": ("z = [lambda a: float(a)][0](x)", "host_read"),
    "through_class": ("z = Box(x).content\nz = float(z)", "host_read"),
    "through_self": ("box = Box(1)\nbox.keep(x)\nz = float(box.content)", "host_read"),
    "if_tensor": ("if x > 0:\n    n = 1", "host_read"),
    "while_tensor": ("while x.sum():\n    n = 1", "host_read"),
    "not_tensor": ("z = not x", "host_read"),
    "and_tensor": ("z = x and y", "host_read"),
    "chained": ("z = 0 < x < 1", "host_read"),
    "in_tensor": ("z = 1 in x", "host_read"),
    "conditional": ("z = 1 if x else 2", "host_read"),
    "comprehension_if": ("z = [i for i in range(3) if x]", "host_read"),
    "asserted": ("assert (x > 0).all()", "host_read"),
    "range_tensor": ("z = range(x)", "host_read"),
    "max_of_tensors": ("z = max(x, y)", "host_read"),
    "bounds": ("z = x[: x.sum()]", "host_read"),
    "mask": ("z = x[x > 0]", "host_read"),
    "augmented": ("x += y", "in_place"),
    "setitem": ("x[0] = y[0]", "in_place"),
    "in_place_method": ("x.add_(1)", "in_place"),
    "in_place_function": ("z = torch.relu_(x)", "in_place"),
    "in_place_keyword": ("z = torch.nn.functional.relu(x, inplace=True)", "in_place"),
    "in_place_position": ("z = torch.nn.functional.relu(x, True)", "in_place"),
    "out_of_an_input": ("z = torch.add(x, y, out=x)", "in_place"),
    "copy_into_view": ("x.view(-1).copy_(y.view(-1))", "in_place"),
    "unbound_method": ("z = torch.Tensor.add_(x, 1)", "in_place"),
    "running_statistics": ("z = torch.nn.functional.batch_norm(x, y, y, training=True)", "in_place"),
    "random": ("z = torch.randn(3)", "random"),
    "dropout": ("z = torch.nn.functional.dropout(x, 0.5)", "random"),
    "random_method": ("z = torch.empty_like(x).normal_()", "random"),
    "nonzero": ("z = torch.nonzero(x)", "host_read"),
    "where_of_one": ("z = torch.where(x)", "host_read"),
    "allclose": ("z = torch.allclose(x, y)", "host_read"),
    "equal_method": ("z = x.equal(y)", "host_read"),
    "item": ("z = x.sum().item()", "host_read"),
    "tolist": ("z = x.shape\nz = x.tolist()", "tensor_method"),
    "cpu": ("z = x.cpu()", "host_read"),
    "numpy": ("z = x.numpy()", "tensor_method"),
    "float_builtin": ("z = float(x)", "host_read"),
    "math_on_tensor": ("z = math.sqrt(x)", "host_read"),
    "cdiv_on_tensor": ("z = triton.cdiv(x, y)", "host_read"),
    "load": ("z = torch.load('f')", "forbidden_call"),
    "environment": ("z = os.environ['HOME']", "forbidden_call"),
    "frames": ("z = sys._getframe()", "forbidden_call"),
    "clock": ("z = time.perf_counter()", "forbidden_call"),
    "modules": ("z = sys.modules", "forbidden_call"),
    "source": ("z = inspect.stack()", "forbidden_call"),
    "attribute_getter": ('z = operator.attrgetter("data")(x)', "forbidden_attribute"),
    "fft_of_module": ("f = torch.fft", "module_as_value"),
    "set_of_tensors": ("z = {x, y}", "host_read"),
    "tensor_as_key": ("d = {}\nz = d.get(x)", "host_read"),
    "bound_method": ("f = x.max\nz = f()", "forbidden_attribute"),
    "rebinding": ("t = torch", "module_as_value"),
    "rebinding_tuple": ("t, u = torch, 1", "module_as_value"),
    "rebinding_dict": ('t = {"t": torch}', "module_as_value"),
    "rebinding_default": ("def f(t=torch):\n    return t", "module_as_value"),
    "rebinding_walrus": ("z = (t := torch)", "module_as_value"),
    "assign_to_torch": ("torch = x", "rebinding"),
    "parameter_named_math": ("def f(math):\n    return math.sqrt(2)\nf(x)", "rebinding"),
    "attribute_assignment": ("x.data = y", "attribute_assignment"),
    "patch": ("torch.allclose = None", "attribute_assignment"),
    "getattr": ('z = getattr(x, "su" + "m")()', "forbidden_name"),
    "getattr_private": ('z = getattr(x, "_version")', "private_name"),
    "import_builtin": ('z = __import__("os")', "forbidden_name"),
    "exec": ('exec("z = 1")', "forbidden_name"),
    "open": ('open("/tmp/score", "w")', "forbidden_name"),
    "globals": ("z = globals()", "forbidden_name"),
    "id": ("z = id(x)", "forbidden_name"),
    "print_of_a_tensor": ("print(x)", "host_read"),
    "print_to_a_file": ('print("ES_t: 100", file=Box)', "forbidden_name"),
    "type_as_value": ("t = type(x)", "forbidden_name"),
    "type_of_a_type": ("z = type(type(x))", "forbidden_name"),
    "new_type": ('z = type("T", (), {}) is int', "forbidden_name"),
    "hasattr_by_variable": ("z = hasattr(x, route)", "forbidden_name"),
    "hasattr_private": ('z = hasattr(x, "_version")', "forbidden_name"),
    "hasattr_of_a_module": ('z = hasattr(sys, "modules")', "module_as_value"),
    "delete_of_the_module": ("del BOX", "statement"),
    "delete_of_an_element": ("del x[0]", "in_place"),
    "match_of_a_tensor": ("match x:\n    case 1:\n        n = 2", "host_read"),
    "match_that_names_a_tensor": ("match x:\n    case m:\n        n = m", "host_read"),
    "match_of_a_mapping": ("match n:\n    case {1: m}:\n        n = 2", "statement"),
    "match_of_the_rest": ("match (n, x):\n    case [1, *m]:\n        n = m[0]", "host_read"),
    "match_of_a_class": ("match n:\n    case int(real=m):\n        n = 2", "statement"),
    "format_of_attributes": ('z = "{0.x}".format(n)', "tensor_method"),
    "format_of_a_variable": ("z = route.format(n)", "tensor_method"),
    "format_of_a_tensor_plainly": ('z = "{}".format(x)', "host_read"),
    "in_place_on_a_view": ("x.view(-1).relu_()", "in_place"),
    "dunder": ("z = x.__class__", "private_name"),
    "version": ("z = x._version", "private_name"),
    "data_ptr": ("z = x.data_ptr()", "tensor_method"),
    "import": ("import socket", "import"),
    "import_harness": ("from passbench import score", "import"),
    "import_ctypes": ("import ctypes", "import"),
    "import_inline": ("from torch.utils.cpp_extension import load_inline", "import"),
    "import_star": ("from math import *", "import"),
    "extern_libs": ('kernel[(1,)](x, y, out, n, BLOCK=16, extern_libs={"l": "/tmp/l.bc"})', "extern_libs"),
    "kernel_internals": ("z = kernel.fn(x, y, out, n, 16)", "tensor_method"),
    "stream": ("s = torch.cuda.Stream()", "forbidden_call"),
    "manual_seed": ("torch.manual_seed(0)", "forbidden_call"),
    "compile": ("f = torch.compile(kernel)", "forbidden_call"),
    "class": ("class T:\n    pass", "statement"),
    "format": ('z = "{0.__class__}".format(x)', "tensor_method"),
    "bare_except": ("try:\n    n = len(x.shape)\nexcept:\n    n = 2", "statement"),
    "catches_everything": ("try:\n    n = 1\nexcept BaseException:\n    n = 2", "statement"),
    "error_in_a_function": ('def said():\n    return f"{e}"\ntry:\n    n = 1\nexcept IndexError as e:\n    z = said()',
                            "host_read"),
    "error_in_a_generator": ('z = (f"{e}" for _ in (1,))\ntry:\n    n = 1\nexcept IndexError as e:\n    n = next(z)',
                             "host_read"),
    "global_error": ("global e\ntry:\n    n = 1\nexcept IndexError as e:\n    n = 2", "host_read"),
    "annotation": ("z: exec('1') = 1", "annotation"),
    "grid_writes": ('def grid(meta):\n    meta["out_ptr"][0] = 1\n    return (1,)\nkernel[grid](x, y, out, n, BLOCK=1)',
                    "in_place"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED_BODIES)
def test_refused_wrappers(tmp_path, name):
    body, rule = REFUSED_BODIES[name]
    findings = check(tmp_path, IMPORTS + in_wrapper(body) + BOX)
    assert rule in [f.rule for f in findings], findings
    assert all(f.file == "rule.py" and f.line > 0 and f.message for f in findings)


_LAUNCH = "\nfrom passbench.launch import Launch\n"
_NORM = """
@triton.jit
def norm(x_ptr, out_ptr, columns):
    tl.store(out_ptr, tl.rsqrt(tl.load(x_ptr) / columns))
"""
REFUSED_MODULES = {
    "launch_without_the_constant": (
        HEAD + _LAUNCH + _NORM + "launch = Launch(norm, (1,))\n" + WRAPPER.format(body="launch(x, out, y)"),
        "address",
    ),
    "kernel_handed_on": (
        HEAD + _NORM + "same = {1: norm}\n" + WRAPPER.format(body="same[1][(1,)](x, out, out)"),
        "address",
    ),
    "kernel_that_a_launch_fixes_and_that_is_handed_on": (
        HEAD
        + _LAUNCH
        + _NORM
        + "launch, same = Launch(norm, (1,), columns=4), [norm]\n"
        + WRAPPER.format(body="launch(x, out)\n    same[0][(1,)](x, out, out)"),
        "address",
    ),
    "computing_arguments": (HEAD.replace('(x, y, "route", 2)', "(x + y, y)"), "replacement_args"),
    "calling_in_arguments": (HEAD.replace('(x, y, "route", 2)', "(x.sum(), y)"), "replacement_args"),
    "branching_arguments": (HEAD.replace("return (x,", "if x:\n        return ()\n    return (x,"), "replacement_args"),
    "torch_as_replacement": (HEAD.replace("return wrapper", "return torch.relu"), "replacement_func"),
    "kernel_as_replacement": (HEAD.replace("return wrapper", "return kernel"), "replacement_func"),
    "pattern_loads": (HEAD.replace("torch.relu(x + y)", 'torch.load("f")'), "pattern"),
    "pattern_dunder": (HEAD.replace("torch.relu(x + y)", "x.__class__"), "private_name"),
    "pattern_branches": (HEAD.replace("return torch.relu(x + y)", "if x:\n        return x"), "pattern"),
    "pattern_annotation": (HEAD.replace("pattern(x, y)", "pattern(x: exec('1'), y)"), "annotation"),
    "pattern_default": (HEAD.replace("pattern(x, y)", "pattern(x=exec('1'), y=1)"), "forbidden_name"),
    "module_level_code": (HEAD + "\nwhile True:\n    pass\n", "module_statement"),
    "module_level_path": ("import sys\n" + HEAD + "\nsys.path.insert(0, '/tmp')\n", "forbidden_call"),
    "metaclass": (HEAD + "\nclass Lazy(metaclass=type):\n    pass\n", "module_statement"),
    "class_with_special_method": (
        HEAD + "\nclass Odd:\n    def __eq__(self, other):\n        return True\n",
        "private_name",
    ),
    "class_that_opens_addresses": (
        HEAD
        + "\nclass Odd:\n    @staticmethod\n    def data_ptr(x):\n        return 1\n"
        + WRAPPER.format(body="z = Odd.data_ptr(x) + x.data_ptr()"),
        "tensor_method",
    ),
    "class_with_a_view_of_its_own": (
        HEAD + "\nclass Odd:\n    @property\n    def indices(self):\n        return 1\n",
        "rebinding",
    ),
    "second_method_of_a_name": (
        HEAD
        + "\nclass Odd:\n    @staticmethod\n    def run(x):\n        return 1\n"
        + "    @staticmethod\n    def run(x):\n        return float(x)\n"
        + WRAPPER.format(body="z = Odd.run(x)"),
        "host_read",
    ),
    "forward_that_reads": (
        HEAD
        + "\nclass Odd(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
        + "        return float(x)\n"
        + WRAPPER.format(body="z = Odd.apply(x)"),
        "host_read",
    ),
    "context_set_up_apart": (
        HEAD
        + "\nclass Odd(torch.autograd.Function):\n    @staticmethod\n    def forward(x):\n        return float(x)\n"
        + "\n    @staticmethod\n    def setup_context(ctx, inputs, output):\n        return None\n"
        + WRAPPER.format(body="z = Odd.apply(x)"),
        "module_statement",
    ),
    "forward_of_the_class": (
        HEAD
        + "\nclass Odd(torch.autograd.Function):\n    @classmethod\n    def forward(cls, ctx, x):\n        return x\n"
        + WRAPPER.format(body="z = Odd.apply(x)"),
        "module_statement",
    ),
    "context_set_up_by_name": (
        HEAD
        + "\ndef keep(ctx, inputs, output):\n    return None\n"
        + "\nclass Odd(torch.autograd.Function):\n    setup_context = keep\n\n    @staticmethod\n"
        + "    def forward(x):\n        return x\n"
        + WRAPPER.format(body="z = Odd.apply(x)"),
        "module_statement",
    ),
    "apply_of_its_own": (
        HEAD
        + "\nclass Odd(torch.autograd.Function):\n    @staticmethod\n    def apply(x):\n        return float(x)\n"
        + WRAPPER.format(body="z = Odd.apply(x)"),
        "host_read",
    ),
    "class_that_opens_kernels": (
        HEAD + "\nclass Odd:\n    fn: int = 1\n" + WRAPPER.format(body="z = kernel.fn"),
        "forbidden_attribute",
    ),
    "cached_tensors": (
        HEAD.replace("import math", "import functools")
        + "\n@functools.lru_cache\ndef keep(x):\n    return x\n"
        + WRAPPER.format(body="z = keep(x)"),
        "cached_tensor",
    ),
    "relative_to_nowhere": (HEAD + "\nfrom .missing import f\n", "import"),
    "above_the_pass": (HEAD + "\nfrom ..passbench import score\n", "import"),
    "pointer_type": (HEAD.replace("i = tl.program_id(0)", "p = n.to(tl.pointer_type(tl.float32))"), "forbidden_name"),
    "cast_to_pointer": (HEAD.replace("i = tl.program_id(0)", "p = tl.cast(n, x_ptr.dtype)"), "address"),
    "to_pointer": (HEAD.replace("i = tl.program_id(0)", "p = n.to(x_ptr.dtype, bitcast=True)"), "address"),
    "to_pointer_by_name": (HEAD.replace("i = tl.program_id(0)", "t = x_ptr.type\n    p = n.to(t)"), "address"),
    "pointer_of_a_sum": (HEAD.replace("i = tl.program_id(0)", "p = n.to((x_ptr + n).dtype)"), "address"),
    "pointer_to_number": (HEAD.replace("i = tl.program_id(0)", "p = x_ptr.to(tl.int64)"), "address"),
    "stored_pointer": (HEAD.replace("i = tl.program_id(0)", "tl.store(out_ptr, x_ptr)"), "address"),
    "pointer_in_helper": (
        HEAD.replace("i = tl.program_id(0)", "p = number(x_ptr)")
        + "\n@triton.jit\ndef number(a):\n    return a.to(tl.int64)\n",
        "address",
    ),
    "pointer_from_helper": (
        HEAD.replace("i = tl.program_id(0)", "p = same(x_ptr).to(tl.int64)")
        + "\n@triton.jit\ndef same(a):\n    b = a\n    return b\n",
        "address",
    ),
    "pointer_in_tuple": (HEAD.replace("i = tl.program_id(0)", "a, b = (x_ptr, n)\n    c = a.to(tl.int64)"), "address"),
    "pointer_into_assembly": (
        HEAD.replace(
            "i = tl.program_id(0)",
            'p = tl.inline_asm_elementwise("mov.u64 $0, $1;", "=l,l", [x_ptr], dtype=tl.int64, is_pure=True, pack=1)',
        ),
        "address",
    ),
    "assembly_loads": (
        HEAD.replace(
            "i = tl.program_id(0)",
            'p = tl.inline_asm_elementwise("ld.global.b32 $0, [$1];", "=r,l", [n], '
            "dtype=tl.int32, is_pure=False, pack=1)",
        ),
        "assembly",
    ),
    **{
        f"assembly_with_{what}": (
            HEAD.replace(
                "i = tl.program_id(0)",
                f'p = tl.inline_asm_elementwise("{text}", "=r", [], dtype=tl.int32, is_pure=False, pack=1)',
            ),
            "assembly",
        )
        for what, text in (
            ("a_clock", "mov.u32 $0, %clock_hi;"),
            ("the_next_launch", "griddepcontrol.launch_dependents;"),
            ("the_end_of_its_function", "mov.u32 $0, 0; ret; } .func other() {"),
            ("its_end_beside_a_comment", "// {\\nmov.u32 $0, 0; ret; }\\n.func other() {\\n// }"),
            ("its_end_beside_comments", "/* { */ mov.u32 $0, 0; ret; } .func other() { /* } */"),
            ("a_comment_without_end", "mov.u32 $0, 0; /*"),
            ("a_register_of_the_kernel", "cvt.u32.u64 $0, %rd1;"),
            ("one_behind_a_block", "{ .reg .b64 %rd1; } cvt.u32.u64 $0, %rd1;"),
            ("one_that_a_comment_declares", "{ // .reg .b64 %rd1;\\n cvt.u32.u64 $0, %rd1; }"),
            ("a_number_of_many_digits", "{ .reg .b32 %r<" + "1" * 5000 + ">; }"),
            ("a_letter_that_no_table_holds", "$\\ud800"),
            ("one_too_many", "{ .reg .b64 %rd<2>; cvt.u32.u64 $0, %rd2; }"),
        )
    },
    "assembly_with_an_operand_in_memory": (
        HEAD.replace(
            "i = tl.program_id(0)",
            'p = tl.inline_asm_elementwise("ld.u32 $0, $1;", "=r,m", [n], dtype=tl.int32, is_pure=True, pack=1)',
        ),
        "assembly",
    ),
    "assembly_in_a_name": (
        HEAD.replace(
            "i = tl.program_id(0)",
            'p = tl.inline_asm_elementwise(ASM, "=r,r", [n], dtype=tl.int32, is_pure=True, pack=1)',
        )
        + "\nASM = 'mov.b32 $0, $1;'\n",
        "assembly",
    ),
    "class": (HEAD + "\nclass Lazy(torch.Tensor):\n    pass\n", "module_statement"),
    "decorator": (HEAD + "\n@torch.compile\ndef f(x):\n    return x\n", "decorator"),
    "kernel_global": (HEAD.replace("i = tl.program_id(0)", "i = eval('0')"), "forbidden_name"),
    "kernel_host_call": (HEAD.replace("i = tl.program_id(0)", "i = torch.ones(1)"), "forbidden_name"),
    "kernel_private": (HEAD.replace("tl.program_id(0)", "tl.core._x(0)"), "private_name"),
    "heuristic": (
        HEAD + '\n@triton.heuristics({"W": lambda args: args["x"] * args["y"]})\n@triton.jit\ndef k(W):\n    pass\n',
        "heuristic",
    ),
    "wrong_literal_position": (
        HEAD.replace('(x, y, "route", 2)', '("route", x, y, 2)') + WRAPPER.format(body="z = float(y.view(-1))"),
        "host_read",
    ),
    "launch_of_no_kernel": (HEAD + _LAUNCH + "launch = Launch(torch.relu, (1,))\n", "launch"),
    "launch_of_a_variable": (HEAD + _LAUNCH + "same = kernel\nlaunch = Launch(same, (1,))\n", "launch"),
    "launch_of_a_function": (HEAD + _LAUNCH + "def f(x):\n    return x\nlaunch = Launch(f, (1,))\n", "launch"),
    "launch_holds_a_tensor": (
        HEAD + _LAUNCH + "launches = []\n" + WRAPPER.format(body="launches.append(Launch(kernel, (1,), n=x))"),
        "launch",
    ),
    "launch_loads": (HEAD + _LAUNCH + 'launch = Launch(kernel, (1,), extern_libs={"l": "/tmp/l.bc"})\n', "extern_libs"),
    "launch_as_value": (HEAD + _LAUNCH + "make = Launch\n", "function_as_value"),
    "launch_internals": (HEAD + _LAUNCH + "kernel_again = Launch(kernel, (1,))._kernel\n", "private_name"),
    "plan_of_tensors": (
        HEAD + "\nfrom passbench.launch import PlanTable\nP = PlanTable({1: torch.ones(1)})\n",
        "host_read",
    ),
    "plan_s_function": (HEAD + "\nfrom passbench.launch import plan_for\nfind = plan_for\n", "function_as_value"),
    "launch_s_module": (HEAD + "\nfrom passbench.launch import capture\nx = capture.torch.load\n", "forbidden_call"),
    "syntax": ("def pattern(", "syntax"),
}


@pytest.mark.parametrize("name", REFUSED_MODULES)
def test_refused_modules(tmp_path, name):
    text, rule = REFUSED_MODULES[name]
    if "def wrapper" not in text:
        text += WRAPPER.format(body="pass")
    assert rule in [f.rule for f in check(tmp_path, text)]


def test_what_is_not_python_is_told_with_its_line_once(tmp_path):
    (finding,) = [f for f in check(tmp_path, "def pattern(") if f.rule == "syntax"]
    assert (finding.line, finding.message) == (1, "not Python: '(' was never closed")


def test_files_and_module_names(tmp_path):
    (tmp_path / "kernel.so").write_bytes(b"\x7fELF")
    findings = check(tmp_path, in_wrapper("pass"), torch="", numpy="", storage="", __main__="", __init__="")
    assert [(f.rule, f.file) for f in findings] == [
        ("module_name", "__main__.py"),
        ("binary_file", "kernel.so"),
        ("module_name", "numpy.py"),
        ("module_name", "storage.py"),
        ("module_name", "torch.py"),
    ]


HELPER = """
from passbench.launch import Launch

@triton.jit
def wave(x):
    return tl.exp(-tl.abs(x))

@triton.jit
def waves(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, wave(GIVEN), mask=i < n)

TABLE = {(4,): Launch(LAUNCHED, (1,), n=4, BLOCK=4)}
"""


@pytest.mark.parametrize(
    ("given", "launched", "refused"),
    [("tl.load(x_ptr + i)", "waves", False), ("x_ptr + i", "waves", True), ("tl.load(x_ptr + i)", "wave", True)],
    ids=["of values", "of addresses", "launched itself"],
)
def test_a_helper_of_kernels_computes_on_what_kernels_give_it(tmp_path, given, launched, refused):
    """Some kernel is launched out of a table: host code cannot mean a helper that it does not name."""
    text = HEAD + HELPER.replace("GIVEN", given).replace("LAUNCHED", launched)
    found = check(tmp_path, text + WRAPPER.format(body="TABLE[x.shape](x, out)"))
    found = [f for f in found if f.rule != "launch"]  # the helper has not the kernel's parameters
    assert [f.rule for f in found] == (["address"] * len(found) if refused else []) and bool(found) == refused


def generated(kind: str, n: int) -> str:
    """A pass of about n lines."""
    small = "\n@triton.jit\ndef k{i}(a, b, n, B: tl.constexpr):\n    tl.store(b + n, tl.load(a + n))\n"
    lines = "\n    ".join
    if kind == "lines":
        return in_wrapper("\n".join(f"v{i} = n + {i}" for i in range(n)))
    if kind == "chain":
        return in_wrapper("\n".join(["v0 = x", *(f"v{i + 1} = v{i} + 1" for i in range(n))]))
    if kind == "kernels":
        kernels = "".join(small.format(i=i) for i in range(n // 5))
        return HEAD + kernels + WRAPPER.format(body=lines(f"k{i}[(1,)](x, y, n, B=1)" for i in range(n // 5)))
    if kind == "unknown kernels":
        kernels = "".join(small.format(i=i) for i in range(n // 10))
        return HEAD + kernels + WRAPPER.format(body=lines(["ks = [kernel]", *["ks[0][(1,)](x, y, n, B=1)"] * (n // 2)]))
    if kind == "kernel":
        chain = lines(["p0 = x_ptr", *(f"p{i + 1} = p{i} + 1" for i in range(n)), "i = tl.program_id(0)"])
        return HEAD.replace("i = tl.program_id(0)", chain) + WRAPPER.format(body="pass")
    if kind == "parameters":
        many = f"@triton.jit\ndef k({', '.join(f'a{i}' for i in range(n))}):\n    pass\n"
        return HEAD + many + WRAPPER.format(body=f"k[(1,)]({', '.join('x' for _ in range(n))})")
    if kind == "classes":
        classes = "".join(
            f"\nclass C{i}:\n    f{i}: int = 1\n\n    def g(self, x):\n        return x\n" for i in range(n // 5)
        )
        return HEAD + classes + WRAPPER.format(body=lines(["c = C0()", *["z = c.g(x)"] * (n // 5)]))
    if kind == "pattern":
        chain = lines([*(f"x{i} = torch.relu(x)" for i in range(n)), "return x"])
        return HEAD.replace("return torch.relu(x + y)", chain) + WRAPPER.format(body="pass")
    return "\n".join(["import math"] * n) + HEAD + WRAPPER.format(body="pass")


def calls_of(text: str) -> int:
    """Calls of Python functions that a check makes."""
    with cProfile.Profile(builtins=False) as counted:
        findings = check_files(PassFiles(("rule",), {"rule.py": text}, ()))
    assert findings == []
    return sum(entry.callcount for entry in counted.getstats())


@pytest.mark.parametrize(
    "kind", ["lines", "chain", "kernels", "unknown kernels", "kernel", "parameters", "classes", "pattern", "imports"]
)
def test_work_is_linear_in_the_size_of_a_pass(kind):
    calls_of(generated(kind, 20))  # fills caches
    few, many = calls_of(generated(kind, 150)), calls_of(generated(kind, 600))
    assert many < 4.6 * few


def test_what_takes_too_long_is_a_finding(tmp_path):
    text = in_wrapper("\n".join(f"v{i} = {'+'.join(['n'] * 60)}" for i in range(650)))
    assert len(text) < MAX_SOURCE
    (finding,) = check(tmp_path, text)
    assert finding.rule == "size" and "too many steps" in finding.message
    classes = "class C0:\n    pass\n" + "".join(f"class C{i}(C{i - 1}):\n    pass\n" for i in range(1, 500))
    (finding,) = check(tmp_path, classes + in_wrapper("\n".join(["C499()"] * 1000)))
    assert finding.rule == "size" and "too many steps" in finding.message
    classes += "".join(f"class C{i}(C{i - 1}):\n    pass\n" for i in range(500, 1000))
    (finding,) = check(tmp_path, classes + in_wrapper("pass"))
    assert finding.rule == "size" and "too many steps" in finding.message
    (finding,) = check(tmp_path, HEAD, more="\n" * MAX_SOURCE)
    assert finding.rule == "size" and "characters" in finding.message


def test_words_for_beginners(tmp_path):
    (first, *_) = check(tmp_path, HEAD.replace("import triton.language as tl", "") + WRAPPER.format(body="pass"))
    assert "tl is not imported" in first.message and "import triton.language as tl" in first.message
    text = HEAD.replace("@triton.jit\n", "") + WRAPPER.format(body="pass")
    (finding,) = check(tmp_path, text)
    assert finding.rule == "missing_jit" and "@triton.jit" in finding.message
    (finding,) = check(tmp_path, in_wrapper("z = n_elements.shape"))
    assert finding.rule == "unknown_name" and "n_elements is bound nowhere" in finding.message
    (finding,) = check(tmp_path, in_wrapper("z = BLOCK"))
    assert finding.message == "BLOCK is not a parameter, a variable or an import here"
    (finding,) = check(tmp_path, HEAD.replace("torch.relu(x + y)", "torch.relu(x + n)") + WRAPPER.format(body="pass"))
    assert finding.message.startswith("n is not a parameter of pattern")


def test_a_pattern_may_name_ellipsis(tmp_path):
    text = HEAD.replace("torch.relu(x + y)", "torch.relu(x + y)[(Ellipsis, slice(None, 2, None))]")
    assert check(tmp_path, text + WRAPPER.format(body="pass")) == []


def test_a_helper_of_kernels_may_have_the_name_of_what_the_pattern_calls(tmp_path):
    helper = "\n@triton.jit\ndef tanh(x):\n    return tl.exp(x) / (1.0 + tl.abs(x))\n"
    text = HEAD.replace("torch.relu(x + y)", "torch.tanh(x + y)").replace(
        "tl.program_id(0) *", "tl.program_id(0) * 1 *"
    )
    text = text.replace(
        "tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n)", "tl.store(out_ptr + i, tanh(tl.load(x_ptr + i))"
    )
    launch = "from passbench.launch import Launch\nTABLE = {1: Launch(kernel, (1,), n=1, BLOCK=16)}\n"
    assert check(tmp_path, text + helper + launch + WRAPPER.format(body="TABLE[n](x, y, out)")) == []
