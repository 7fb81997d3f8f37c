"""The worked example of the prompt: a task and a pass for it. A test runs it through PassBench as it stands here."""

import torch

from passbench.contract import NAMES_FILE


def task(gate: torch.Tensor, up: torch.Tensor) -> tuple[torch.Tensor]:
    """What `SOURCE` shows: a gated linear unit's activation."""
    return (torch.nn.functional.silu(gate, inplace=False) * up,)


SOURCE = """\
import torch


class GraphModule(torch.nn.Module):
    def forward(self, in_0, in_1):
        tmp_0 = torch.nn.functional.silu(in_0, inplace=False)
        tmp_1 = tmp_0 * in_1
        return (tmp_1,)
"""

MODULE = """\
import torch
import triton
import triton.language as tl


def pattern(gate, up):
    activated = torch.nn.functional.silu(gate, inplace=False)
    return activated * up


def replacement_args(gate, up):
    return (gate, up)


@triton.jit
def gated_silu_kernel(gate_ptr, up_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    gate = tl.load(gate_ptr + offsets, mask=mask).to(tl.float32)
    up = tl.load(up_ptr + offsets, mask=mask).to(tl.float32)
    dtype = out_ptr.dtype.element_ty
    activated = (gate / (1.0 + tl.exp(-gate))).to(dtype).to(tl.float32)
    tl.store(out_ptr + offsets, (activated * up).to(dtype), mask=mask)


@torch.fx.wrap
def gated_silu(gate, up):
    gate, up = gate.contiguous(), up.contiguous()
    out = torch.empty_like(gate)
    n = gate.numel()
    gated_silu_kernel[(triton.cdiv(n, 1024),)](gate, up, out, n, BLOCK=1024, num_warps=4)
    return out


def replacement_func():
    return gated_silu
"""

FILES = {"gated_silu.py": MODULE, NAMES_FILE: '["gated_silu"]\n'}
