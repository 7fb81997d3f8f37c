"""Honest passes: forms that are translated into others before they are checked.

`PASSES`, name → (sample, sources).
"""

import torch

from storage.records import Sample
from tests.passbench.attacks import attack_samples as on
from tests.passbench.policy.corpus.corpus_parts import Passes
from tests.passbench.samples import sample, spec, variant

PASSES = Passes()


def rotated() -> Sample:
    def f(q, cos, sin):
        q1, q2 = q[..., :8], q[..., 8:]
        return ((q * cos) + (torch.cat((-q2, q1), dim=-1) * sin),)

    return sample(variant(f, *(spec(name, 2, 6, 16) for name in ("q", "cos", "sin"))))


PASSES.add(
    "parts_of_a_pattern",
    rotated,
    """
$IMPORTS
from contextlib import contextmanager
from collections import OrderedDict

HALF = 8
PLANS = OrderedDict()


def rotate_half(t):
    first, second = t[..., :HALF], t[..., HALF:]
    return torch.cat((-second, first), dim=-1)


def pattern(q, cos, sin):
    parts = []
    for value, factor in ((q, cos), (rotate_half(q), sin)):
        parts.append(value * factor)
    return parts[0] + parts[1]


def replacement_args(q, cos, sin):
    config = dict(half=HALF, route="rotate")
    args = [q, cos, sin, config]
    return tuple(args)


tune = triton.autotune([triton.Config({"BLOCK": block}) for block in (16, 32)], key=["n"])


@tune
@triton.jit
def rotate_kernel(q_ptr, cos_ptr, sin_ptr, out_ptr, n, HALF: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    d = i % (2 * HALF)
    other = tl.where(d < HALF, i + HALF, i - HALF)
    sign = tl.where(d < HALF, -1.0, 1.0)
    q, turned = tl.load(q_ptr + i, mask=mask), sign * tl.load(q_ptr + other, mask=mask)
    cos, sin = tl.load(cos_ptr + i, mask=mask), tl.load(sin_ptr + i, mask=mask)
    tl.store(out_ptr + i, q * cos + turned * sin, mask=mask)


class Plan:
    def __init__(self, n, width):
        self.n, self.width = n, width

    def __eq__(self, other):
        return isinstance(other, Plan) and (self.n, self.width) == (other.n, other.width)

    def __hash__(self):
        return hash((self.n, self.width))


@contextmanager
def on_device_of(t):
    if t.is_cuda:
        with torch.cuda.device(t.device):
            yield
    else:
        yield


@torch.fx.wrap
def fused(q, cos, sin, config):
    assert config["route"] == "rotate"
    plan = Plan(q.numel(), config["half"])
    PLANS[plan] = PLANS.get(plan, 0) + 1
    PLANS.move_to_end(plan)
    if len(PLANS) > 4:
        del PLANS[plan]
    out = torch.empty_like(q)
    with on_device_of(q):
        rotate_kernel[lambda meta: (triton.cdiv(plan.n, meta["BLOCK"]),)](
            q, cos, sin, out, plan.n, HALF=plan.width
        )
    return out


$RETURNS
""",
)

PASSES.add(
    "a_module_that_is_returned",
    on.add_relu,
    """
$IMPORTS
$ADD_RELU
$KERNEL

class FusedAddReLU(torch.nn.Module):
    def __init__(self, block: int = 256):
        super().__init__()
        self.block = block

    def forward(self, x, y):
        out = torch.empty_like(x)
        n = out.numel()
        add_relu_kernel[(triton.cdiv(n, self.block),)](x, y, out, n, BLOCK_SIZE=self.block)
        return out


_fused = FusedAddReLU()


def replacement_func():
    return _fused
""",
)

PASSES.add(
    "an_output_that_a_hook_resets",
    on.row_sums,
    """
$IMPORTS

def pattern(x):
    return x.sum(-1)


def replacement_args(x):
    return (x,)


@triton.autotune(
    configs=[triton.Config({"BLOCK": b}, pre_hook=lambda nargs: nargs["out_ptr"].zero_()) for b in (16, 32)],
    key=["cols"],
)
@triton.jit
def sum_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, cols, BLOCK):
        i = start + tl.arange(0, BLOCK)
        tl.atomic_add(out_ptr + row, tl.sum(tl.load(x_ptr + row * cols + i, mask=i < cols, other=0.0), axis=0))


@torch.fx.wrap
def fused(x):
    out = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
    sum_kernel[(out.numel(),)](x.contiguous(), out, x.shape[-1])
    return out


$RETURNS
""",
)

PASSES.add(
    "a_registry_of_classes_and_settings_as_json",
    on.add_relu,
    '''
import functools
import json

from pass_dir.ops import OPS, register
$IMPORTS

$ADD_RELU

$KERNEL

SETTINGS = json.loads("""{"limits": [4096, 65536], "blocks": [64, 256], "default": 1024}""")


class Seen:
    def __init__(self):
        self.items = {}

    def __contains__(self, n):
        return n in self.items

    def __len__(self):
        return len(self.items)

    def update(self, n, block):
        self.items[n] = block
        return self


SEEN = Seen()


def pick(settings, n):
    for limit, block in zip(settings["limits"], settings["blocks"]):
        if n <= limit:
            return block
    return settings["default"]


block_for = functools.partial(pick, SETTINGS)


@register("add_relu")
class AddReLU:
    def sum(self, x, y):
        out = torch.empty_like(x)
        n = out.numel()
        if n not in SEEN:
            SEEN.update(n, block_for(n))
        add_relu_kernel[(triton.cdiv(n, SEEN.items[n]),)](x, y, out, n, BLOCK_SIZE=SEEN.items[n])
        return out

    def __call__(self, x, y):
        if x.shape != y.shape:
            raise ValueError(f"{self.__class__.__name__} of {tuple(x.shape)} and {tuple(y.shape)}")
        return self.sum(x.contiguous(), y.contiguous())


@torch.fx.wrap
def fused(x, y):
    return OPS["add_relu"](x, y)


$RETURNS
''',
    ops="""
OPS = {}


def register(name):
    def keep(cls):
        OPS[name] = cls()
        return cls

    return keep
""",
)
