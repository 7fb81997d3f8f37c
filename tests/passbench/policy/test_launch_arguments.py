"""A launch that names its kernel gives it the parameters that it has. `check` says so before anything is compiled."""

import pytest

from tests.passbench.policy.test_policy import HEAD, check

WRAPPER = """
from passbench.launch import Launch

@triton.autotune(configs=[triton.Config({"BLOCK": 64})], key=["n"])
@triton.jit
def tuned(x_ptr, n, BLOCK: tl.constexpr, WIDE: tl.constexpr = 1):
    tl.store(x_ptr, n)

@torch.fx.wrap
def wrapper(x, y, route, k):
    out, n = torch.empty_like(x), x.numel()
    more = {"BLOCK": 64}
    BODY
    return out
"""
REFUSED = {
    "kernel[(1,)](x, y, out, n, BLOKC=64)": "kernel has no parameter BLOKC; did you mean BLOCK?",
    "kernel[(1,)](x, y, out, n, BLOCK=64, num_warp=4)": "kernel has no parameter num_warp; did you mean num_warps?",
    "kernel[(1,)](x, y, out, n, rows=1, **more)": "it has x_ptr, y_ptr, out_ptr, n, BLOCK",
    "kernel[(1,)](x, y, out, n)": "kernel needs BLOCK; hand it to the launch",
    "kernel[(1,)](x, y, BLOCK=64, n=n)": "kernel needs out_ptr",
    "kernel[(1,)](x, y, out, n, 64, 4)": "kernel has 5 parameters and gets 6 arguments",
    "kernel[(1,)](x, y, out, n, 64, BLOCK=64)": "gets BLOCK by position and by name",
    "tuned[(1,)](x, n, WIDTH=1)": "tuned has no parameter WIDTH",
    "Launch(kernel, (1,), n=n, BLOKC=64)(x, y, out)": "did you mean BLOCK?",
    "Launch(kernel, (1,), n=n)(x, y, out)": "kernel needs BLOCK; hand it to Launch by name",
}
ACCEPTED = [
    "kernel[(1,)](x, y, out, n, 64)",
    "kernel[(1,)](x_ptr=x, y_ptr=y, out_ptr=out, n=n, BLOCK=64, num_warps=4, num_stages=2, maxnreg=64)",
    "kernel[(1,)](*[x, y, out], n, 64)",
    "kernel[(1,)](x, y, out, n, **more)",
    "tuned[(1,)](out, n)",
    "Launch(kernel, (1,), n=n, BLOCK=64, num_warps=2)(x, y, out)",
    "Launch(kernel, (1,), n=n, **more)(x, y, out)",
]


def findings(tmp_path, body):
    return [(f.rule, f.message) for f in check(tmp_path, HEAD + WRAPPER.replace("BODY", body))]


@pytest.mark.parametrize("body", REFUSED)
def test_what_the_kernel_does_not_take_is_reported(tmp_path, body):
    ((rule, message),) = findings(tmp_path, body)
    assert rule == "launch"
    assert REFUSED[body] in message


@pytest.mark.parametrize("body", ACCEPTED)
def test_what_it_takes_is_allowed(tmp_path, body):
    assert findings(tmp_path, body) == []


@pytest.mark.parametrize(
    ("value", "rules"),
    [
        ("triton.cdiv(BLOCK, 3) + triton.next_power_of_2(BLOCK)", []),
        ("tl.load(tl.tensor_descriptor(n, [4], [1], tl.float32))", ["forbidden_name"]),
    ],
)
def test_what_a_kernel_may_call_by_its_full_name(tmp_path, value, rules):
    kernel = f"\n@triton.jit\ndef other(x_ptr, n, BLOCK: tl.constexpr):\n    tl.store(x_ptr, {value})\n"
    body = "other[(1,)](out, n, 64)"
    found = check(tmp_path, HEAD + kernel + WRAPPER.replace("BODY", body))
    assert [f.rule for f in found] == rules
