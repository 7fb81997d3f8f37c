"""A persistent kernel over as many programs as the device has multiprocessors."""

import torch
import triton
import triton.language as tl


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@triton.jit
def add_relu_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < n
        total = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask)
        tl.store(out_ptr + offsets, tl.maximum(total, 0.0), mask=mask)


_COUNTS = {}


def processors(device):
    if device not in _COUNTS:
        on_gpu = device.type == "cuda"
        _COUNTS[device] = torch.cuda.get_device_properties(device).multi_processor_count if on_gpu else 1
    return _COUNTS[device]


@torch.fx.wrap
def add_relu(x, y):
    out = torch.empty_like(x)
    n = x.numel()
    programs = min(triton.cdiv(n, 128), 2 * processors(x.device))
    add_relu_kernel[(programs,)](x, y, out, n, BLOCK=128)
    return out


def replacement_func():
    return add_relu
