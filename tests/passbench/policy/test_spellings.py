"""Ways to write host code that mean nothing by themselves: contexts with a name, casts, lambdas that reckon, fields
with names of views of tensors, and the number of multiprocessors by Triton's driver."""

import pytest

from tests.passbench.policy.test_policy import HEAD, WRAPPER, check, in_wrapper

WITHOUT_WRAPPER = HEAD.replace("torch.relu(x + y)", "torch.relu(torch.add(x, y))")
DIMS = """
import dataclasses

@dataclasses.dataclass
class Dims:
    B: int
    H: int
    T: int = 1

    def rows(self):
        return self.B * self.H * self.T

"""
HONEST = {
    "context_with_a_name": in_wrapper(
        "import contextlib\nwith torch.cuda.device(x.device) as d, contextlib.nullcontext() as _:\n    n = n + 0"
    ),
    "cast": in_wrapper(
        "import typing\nfrom typing import cast\nfrom collections.abc import Sequence\n"
        'x = cast("torch.Tensor", x)\nn = typing.cast(int, n)\nout = cast(torch.Tensor, out)\n'
        "shape = cast(Sequence[int] | None, x.shape)\nn += cast(tuple[int, ...], tuple(shape))[0]"
    ),
    "lambdas_that_reckon": WITHOUT_WRAPPER
    + "cdiv = lambda a, b: (a + b - 1) // b\npower = lambda n: 1 << (n - 1).bit_length()\n"
    + WRAPPER.format(body='n = max(cdiv(n, 4), power(n))\n    text = f"{cdiv(n, 2)}"\n    sizes = [0] * power(n)'),
    "lambda_of_tensors": in_wrapper("twice = lambda a, b=1: torch.add(a, a) * b\nz = twice(x, b=2) + n"),
    "fields_of_sizes": WITHOUT_WRAPPER
    + DIMS
    + WRAPPER.format(body='d = Dims(*x.shape)\n    n = d.B * d.T + d.rows()\n    t = x.T\n    s = f"{d.T}"'),
    "multiprocessors": WITHOUT_WRAPPER
    + """
from triton.runtime import driver
def sms():
    index = driver.active.get_current_device()
    warp = triton.runtime.driver.active.get_current_target().warp_size
    return driver.active.utils.get_device_properties(index)["multiprocessor_count"] * warp
"""
    + WRAPPER.format(body="n = min(n, sms())"),
}


@pytest.mark.parametrize("name", HONEST)
def test_allowed(tmp_path, name):
    assert check(tmp_path, HONEST[name]) == []


REFUSED = {
    "function_by_a_context": (
        in_wrapper("import contextlib\ndef f(a):\n    return float(a)\nwith contextlib.nullcontext(f) as g:\n    g(x)"),
        "host_read",
    ),
    "text_of_a_context": (in_wrapper("with torch.no_grad() as c:\n    z = str(c)"), "forbidden_name"),
    "tensor_by_a_context": (
        in_wrapper("import contextlib\nwith contextlib.nullcontext(x) as t:\n    t.zero_()"),
        "in_place",
    ),
    "import_by_a_context": (in_wrapper("with torch.no_grad() as torch:\n    pass"), "rebinding"),
    "reads_through_a_cast": (in_wrapper("from typing import cast\nz = float(cast(float, x.sum()))"), "host_read"),
    "writes_through_a_cast": (in_wrapper("from typing import cast\ncast(int, x.contiguous()).zero_()"), "in_place"),
    "call_in_a_cast": (in_wrapper("from typing import cast\nz = cast(eval('int'), x)"), "forbidden_name"),
    "code_by_a_cast": (in_wrapper("from typing import cast\nz = cast(int, exec)('1')"), "forbidden_name"),
    "private_in_a_cast": (in_wrapper("from typing import cast\nz = cast(torch._C, x)"), "private_name"),
    "text_by_a_cast": (in_wrapper("from typing import cast\nz = str(cast(str, map(len, [[1]])))"), "forbidden_name"),
    "cast_handed_on": (in_wrapper("import typing\nz = typing.cast"), "forbidden_call"),
    "lambda_reads": (in_wrapper("f = lambda a: float(a)\nz = f(x)"), "host_read"),
    "lambda_bound_again": (in_wrapper("f = lambda a: a + 1\nf = lambda a: [1]\nz = f(n) * x.argmax()"), "host_read"),
    "lambda_bound_by_a_loop": (
        in_wrapper("f = lambda a: a + 1\nfor f in [len]:\n    pass\nz = [0] * f(x)"),
        "dynamic_call",
    ),
    "lambda_bound_by_nonlocal": (
        in_wrapper("f = lambda a: 1\ndef g():\n    nonlocal f\n    f = len\ng()\nz = f(x)"),
        "dynamic_call",
    ),
    "lambda_returns_a_list": (in_wrapper("f = lambda: [0]\nz = f() * x.argmax()"), "host_read"),
    "function_returns_a_list": (in_wrapper("def f():\n    return [0]\nz = f() * x.argmax()"), "host_read"),
    "lambda_that_is_a_grid_too": (
        in_wrapper('g = lambda m: (m["BLOCK"],)\nkernel[g](x, y, out, n, BLOCK=16)\nz = g({"BLOCK": x})'),
        "dynamic_call",
    ),
    "tensor_in_a_field_T": (
        WITHOUT_WRAPPER + DIMS + WRAPPER.format(body="def f(d):\n        return float(d.T)\n    z = f(Dims(1, 2, x))"),
        "host_read",
    ),
    "transposed_beside_a_field_T": (
        WITHOUT_WRAPPER + DIMS + WRAPPER.format(body="def f(t):\n        return t.T.zero_()\n    z = f(x)"),
        "in_place",
    ),
    "method_called_T": (
        HEAD + "class A:\n    def T(self):\n        return 1\n" + WRAPPER.format(body="pass"),
        "rebinding",
    ),
    "driver_loads": (
        WITHOUT_WRAPPER + WRAPPER.format(body="z = triton.runtime.driver.active.utils.load_binary('a', b'', 0, 0)"),
        "forbidden_call",
    ),
    "driver_handed_on": (WITHOUT_WRAPPER + WRAPPER.format(body="z = triton.runtime.driver.active"), "forbidden_call"),
    "driver_set": (
        WITHOUT_WRAPPER + WRAPPER.format(body="triton.runtime.driver.active.launcher_cls = None"),
        "attribute_assignment",
    ),
    "runtime_handed_on": (WITHOUT_WRAPPER + WRAPPER.format(body="z = triton.runtime"), "module_as_value"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(tmp_path, name):
    text, rule = REFUSED[name]
    text = text.replace("return torch.relu(x + y)", "return torch.relu(torch.add(x, y))")
    assert rule in {f.rule for f in check(tmp_path, text)}


ADVISED = {
    "torch.manual_seed(0)": "leave the line out",
    "z = torch.backends.cuda.matmul.allow_tf32": 'input_precision="tf32"',
    "import os\nz = os.environ.get('A', '1')": "write the value into the source",
    "with torch.cuda.stream(torch.cuda.current_stream()):\n    pass": "write the launches without `with`",
    "def f():\n    return 1\nf.calls = 0": "keep calls in a variable or a dict of the module",
    "kernel.run(x, y, out, n, grid=(1,), warmup=False, BLOCK=16)": "launch a kernel as KERNEL[grid]",
    "k = triton.jit(kernel)": "write it as a decorator above `def`",
}


@pytest.mark.parametrize("body", ADVISED)
def test_what_to_write_instead(tmp_path, body):
    assert any(ADVISED[body] in f.message for f in check(tmp_path, in_wrapper(body)))


@pytest.mark.parametrize("text", ["cast(" + " | ".join(["int"] * 3000) + ", x)", "cast(int, " * 150 + "x" + ")" * 150])
def test_long_casts_are_dropped(tmp_path, text):
    assert {f.rule for f in check(tmp_path, in_wrapper(f"from typing import cast\nz = {text}"))} <= {"syntax"}
