"""An interpreted kernel reaches the memory of its arguments and no other."""

from pathlib import Path

import pytest
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler import CompiledKernel

from passbench.child.kernel_options import KernelOption, confine_options
from tests.support.interpreted import answers_of

ROOT = Path(__file__).parents[3]
SCRIPT = """
import torch, triton, triton.language as tl
from passbench.child.interpreter import triton_interpreter

triton_interpreter.confine_kernels()

@triton.jit
def copy(x_ptr, out_ptr, n, shift_in, shift_out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i + shift_out, tl.load(x_ptr + i + shift_in, mask=i < n), mask=i < n)

@triton.jit
def add(x_ptr, out_ptr, n, shift, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr + shift + i * 0, tl.load(x_ptr + i, mask=i < n, other=0.0), mask=i < n)

@triton.jit
def swap(out_ptr, shift):
    tl.atomic_cas(out_ptr + shift, 0, 1)

def tried(kernel, *args, **constants):
    try:
        kernel[(1,)](*args, **constants)
    except Exception as error:
        return "memory_outside" in str(error)
    return "done"

x, out, whole = torch.arange(5.0), torch.zeros(5), torch.arange(20.0)
one, ints = torch.zeros(1), torch.zeros(1, dtype=torch.int32)
"""
TRIED = {
    "tried(copy, x, out, 5, 0, 0, BLOCK=8), out.tolist()": "('done', [0.0, 1.0, 2.0, 3.0, 4.0])",
    "tried(copy, x, out, 6, 0, 0, BLOCK=8)": "True",
    "tried(copy, x, out, 5, 1, 0, BLOCK=8)": "True",
    "tried(copy, x, out, 5, -1, 0, BLOCK=8)": "True",
    "tried(copy, x, out, 5, 0, 1, BLOCK=8)": "True",
    "tried(copy, whole[5:10], out, 5, -5, 0, BLOCK=8), out.tolist()": "('done', [0.0, 1.0, 2.0, 3.0, 4.0])",
    "tried(add, x, one, 5, 0, BLOCK=8), one.item()": "('done', 10.0)",
    "tried(add, x, one, 5, 1, BLOCK=8)": "True",
    "tried(swap, ints, 0), ints.item()": "('done', 1)",
    "tried(swap, ints, 1)": "True",
    "tried(copy, x, out, 6, 0, 0, BLOCK=8), tried(copy, x, out, 5, 0, 0, BLOCK=8)": "(True, 'done')",
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory, torch_forks):
    """What a process with the interpreter says of each expression."""
    return answers_of(SCRIPT, TRIED, tmp_path_factory.mktemp("kernels"), torch_forks)


@pytest.mark.parametrize("expression", TRIED)
def test_a_kernel_reaches_its_arguments(answers, expression):
    assert answers[expression] == TRIED[expression]


def test_options_that_load_code_or_let_launches_overlap_are_refused(monkeypatch):
    monkeypatch.setattr(CUDABackend, "parse_options", CUDABackend.parse_options)  # back afterwards
    monkeypatch.setattr(CompiledKernel, "__getitem__", CompiledKernel.__getitem__)
    confine_options.__wrapped__()
    with pytest.raises(KernelOption, match="not what a launch has returned"):
        object.__new__(CompiledKernel)[(1, 1, 1)](1 << 40)
    backend = CUDABackend(GPUTarget("cuda", 90, 32))
    own = {"num_warps": 8, "num_stages": 2, "maxnreg": 64, "debug": True, "launch_cooperative_grid": True}
    read = backend.parse_options(own)
    assert read.num_warps == 8 and backend.parse_options(vars(read)) == read  # Triton reads what it has read
    for foreign in ({"extern_libs": {"libdevice": "f.py"}}, {"launch_pdl": True}, {"ptx_options": "-O1"}):
        with pytest.raises(KernelOption, match=f"may not choose {next(iter(foreign))}"):
            backend.parse_options(own | foreign)
