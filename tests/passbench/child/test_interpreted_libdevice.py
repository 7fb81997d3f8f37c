"""An interpreted kernel may call libdevice's functions."""

import pytest

SCRIPT = """
import torch, triton, triton.language as tl
from passbench.child.interpreted_libdevice import lend_libdevice

lend_libdevice()
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as of_cuda

@triton.jit
def of_elements(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=1.0)
    tl.store(out_ptr + i, libdevice.exp(x) + of_cuda.tanh(x), mask=i < n)

@triton.jit
def of_two(x_ptr, by_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x, by = tl.load(x_ptr + i, mask=i < n, other=1.0), tl.load(by_ptr)
    tl.store(out_ptr + i, libdevice.fmod(x, by) + libdevice.pow(x, 2.0), mask=i < n)

@triton.jit
def of_one(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    tl.store(out_ptr, libdevice.log1p(tl.load(x_ptr)))

def ran(kernel, *args):
    try:
        kernel[(1,)](*args, len(args[0]), BLOCK=8)
    except Exception as error:
        return str(error)
    return args[-1]

x, by = torch.tensor([0.5, 1.0, 2.5, 3.0, 7.25]), torch.tensor([2.0])
wide = x.double()
def close(found, expected):
    return torch.allclose(found, expected, rtol=1e-6)
"""
TRIED = {
    "close(ran(of_elements, x, torch.zeros(5)), x.exp() + x.tanh())": "True",
    "close(ran(of_elements, wide, torch.zeros_like(wide)), wide.exp() + wide.tanh())": "True",
    "close(ran(of_two, x, by, torch.zeros(5)), torch.fmod(x, by) + x**2)": "True",
    "close(ran(of_one, by, torch.zeros(1)), by.log1p())": "True",
    "'libdevice has no exp of fp16' in ran(of_elements, x.half(), torch.zeros(5).half())": "True",
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory, torch_forks):
    """What a process with the interpreter says of each expression. Triton reads its kernels from a file."""
    directory = tmp_path_factory.mktemp("kernels")
    script = directory / "kernels.py"
    script.write_text(SCRIPT + "\n".join(f"print({expression})" for expression in TRIED))
    environment = {"TRITON_INTERPRET": "1", "PATH": "/usr/bin:/bin", "HOME": str(directory)}
    done = torch_forks(f"import runpy; runpy.run_path({str(script)!r})", environment)
    assert done.returncode == 0, done.stderr
    return dict(zip(TRIED, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("expression", TRIED)
def test_a_kernel_gets_what_torch_computes(answers, expression):
    assert answers[expression] == TRIED[expression]
