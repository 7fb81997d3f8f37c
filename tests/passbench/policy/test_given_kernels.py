"""Kernels that a launch gives to another one for a `tl.constexpr`, which calls them: `ACT=ACTIVATIONS["silu"]`."""

import pytest

from tests.passbench.policy.test_policy import check, in_wrapper

MODULE = """
import functools
from passbench.launch import Launch

def half(t):
    return t // 2

@triton.jit
def relu(v):
    return tl.maximum(v, 0.0)

@triton.jit
def silu(v):
    return v * tl.sigmoid(v)

TABLE = {{"relu": relu, "silu": silu}}
{more}
{above}@triton.jit
def fused(x_ptr, out_ptr, n, ACT: tl.constexpr{default}, BLOCK: tl.constexpr = 256):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + offs, mask=offs < n)
    {body}
    tl.store(out_ptr + offs, ACT({given}), mask=offs < n)
"""
FUSED = "fused[(1,)](x, out, n, ACT={}, BLOCK=256)"
ACCEPTED = {
    "of a table": (FUSED.format("TABLE['silu']"), ""),
    "of a table, or another": (FUSED.format("TABLE.get('gelu', relu)"), ""),
    "by its name": (FUSED.format("silu"), ""),
    "by its place": ("fused[(1,)](x, out, n, TABLE['relu'], 256)", ""),
    "by a function": ("act(x, out, n, TABLE['relu'])", "def act(x, out, n, f):\n    fused[(1,)](x, out, n, f)\n"),
    "of a field": (
        "PLAN.go(x, out, n)",
        "class Plan:\n    def __init__(self, act):\n        self.act = act\n    def go(self, x, out, n):\n"
        "        fused[(1,)](x, out, n, ACT=self.act)\nPLAN = Plan(silu)\n",
    ),
}
REFUSED = {
    "host code": (FUSED.format("half"), {}),
    "host code of a table": ("TABLE['half'] = half\n" + FUSED.format("TABLE['half']"), {}),
    "host code in another launch": (FUSED.format("silu") + "\n" + FUSED.format("half"), {}),
    "a lambda": (FUSED.format("lambda v: v"), {}),
    "an operator": (FUSED.format("torch.relu"), {}),
    "a function of Triton": (FUSED.format("tl.exp"), {}),
    "a partial function": (FUSED.format("functools.partial(half)"), {}),
    "an instance": (FUSED.format("Act()"), {"more": "class Act:\n    def __call__(self, v):\n        return v\n"}),
    "a class": (FUSED.format("Act"), {"more": "class Act:\n    def __init__(self, v):\n        self.v = v\n"}),
    "host code by its place": ("fused[(1,)](x, out, n, half)", {}),
    "host code unpacked": ("fused[(1,)](*(x, out, n, half))", {}),
    "host code of a dict": ("fused[(1,)](x, out, n, **{'ACT': half})", {}),
    "host code of a Launch": ("Launch(fused, (1,), ACT=half, n=n)(x, out)", {}),
    "host code to what may be this kernel": (
        FUSED.format("silu") + "\nrun(fused, half, x, out, n)",
        {"more": "def run(k, f, x, out, n):\n    k[(1,)](x, out, n, ACT=f)\n"},
    ),
    "host code by default": ("fused[(1,)](x, out, n)", {"default": " = half"}),
    "what a configuration gives": (
        "fused[(1,)](x, out, n)",
        {"above": "@triton.autotune([triton.Config({'ACT': half})], key=['n'])\n"},
    ),
    "what a heuristic gives": ("fused[(1,)](x, out, n)", {"above": "@triton.heuristics({'ACT': lambda a: half})\n"}),
    "what a function has set since": (
        FUSED.format("CHOSEN") + "\nchange()",
        {"more": "CHOSEN = silu\ndef change():\n    global CHOSEN\n    CHOSEN = half\n"},
    ),
    "another name later": (FUSED.format("silu"), {"body": "ACT = half"}),
    "an address for it": (FUSED.format("silu"), {"given": "x_ptr + offs"}),
    "another kernel calls this one": (
        FUSED.format("silu"),
        {"more": "@triton.jit\ndef outer(x_ptr, out_ptr, n, F: tl.constexpr):\n    fused(x_ptr, out_ptr, n, F)\n"},
    ),
    "what combines": (FUSED.format("silu"), {"body": "v = tl.reduce(v, 0, ACT)"}),
}


def found(tmp_path, body, parts):
    text = MODULE.format(**{"more": "", "above": "", "default": "", "body": "pass", "given": "v", **parts})
    return [f.rule for f in check(tmp_path, in_wrapper(body) + text)]


@pytest.mark.parametrize("what", ACCEPTED)
def test_a_launch_gives_a_kernel(tmp_path, what):
    body, more = ACCEPTED[what]
    assert found(tmp_path, body, {"more": more}) == []


@pytest.mark.parametrize("what", REFUSED)
def test_what_may_be_host_code_is_refused(tmp_path, what):
    assert found(tmp_path, *REFUSED[what]) != []
