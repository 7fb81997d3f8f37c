"""Kernels that are members of classes, and methods of two names."""

import pytest

from passbench.checking.evidence import jit_functions
from tests.passbench.policy.test_policy import IMPORTS, check, in_wrapper

KERNEL = """
class Ops:
    {on}
    @triton.jit
    def fill(o_ptr, n{more}):
        {body}

    def __init__(self, n):
        self.n = n

    @classmethod
    def of(cls, out, n):
        cls.fill[(1,)](out, n)

    def run_on(self, out):
        self.fill[(1,)](out, self.n)

    {rest}
"""
NAMED = """
class Op:
    def __init__(self, scale):
        self.scale = scale

    def forward(self, t, n=1):
        return {}

    __call__ = forward


OP = Op(2)
"""
ACCEPTED = {
    "by its class": ("Ops.fill[(1,)](out, n)", {}),
    "by a class method": ("Ops.of(out, n)", {}),
    "by an instance": ("Ops(n).run_on(out)", {}),
    "without staticmethod": ("Ops.fill[(1,)](out, n)", {"on": ""}),
    "with numbers": ("Ops.fill[(1,)](out, n)", {"body": "tl.store(o_ptr + n, n.to(tl.float32))"}),
    "arguments in a tuple": ("rest = (out, n)\nOps.fill[(1,)](*rest)", {}),
}
REFUSED = {
    "an address": ("address", "Ops.fill[(1,)](out, n)", {"body": "tl.store(o_ptr, o_ptr)"}),
    "an address in the place of a number": ("address", "Ops.fill[(1,)](x, out)", {"body": "tl.store(o_ptr, n)"}),
    "an address by a class method": ("address", "Ops.of(x, out)", {"body": "tl.store(o_ptr, n)"}),
    "an address by an instance": ("address", "Ops(out).run_on(x)", {"body": "tl.store(o_ptr, n)"}),
    "an address in a tuple": ("address", "r = (x, out)\nOps.fill[(1,)](*r)", {"body": "tl.store(o_ptr, n)"}),
    "an address in a list that grows": (
        "address", "r = [out]\nr.append(x)\nOps.fill[(1,)](*r)", {"body": "tl.store(o_ptr, n)"},
    ),
    "an address in a list of two names": (
        "address", "r = [out, n]\nq = r\nq[1] = x\nOps.fill[(1,)](*r)", {"body": "tl.store(o_ptr, n)"},
    ),
    "an address in one of two tuples": (
        "address", "r = (out, n)\nif n:\n    r = (out, x)\nOps.fill[(1,)](*r)", {"body": "tl.store(o_ptr, n)"},
    ),
    "too few arguments": ("launch", "Ops.fill[(1,)](out)", {}),
    "what does not exist": ("unknown_name", "Ops.fill[(1,)](out, n)", {"body": "tl.stroe(o_ptr, n)"}),
    "another of its name": ("decorator", "Ops.fill[(1,)](out, n)", {"rest": "fill = 1"}),
    "a name that Python changes": (
        "decorator", "Ops.fill[(1,)](out, n)", {"body": "__m = n\n        tl.store(o_ptr, __m)"},
    ),
    "a default of the class": ("decorator", "Ops.fill[(1,)](out)", {"more": "=m", "rest": "m = 3"}),
    "a kernel that a field hides": (
        "address",
        "Ops(out).run_on(x)",
        {"body": "tl.store(o_ptr, n)", "rest": "def put(self, f):\n        self.fill = f"},
    ),
}  # fmt: skip


def found(tmp_path, body, parts):
    filled = {"on": "@staticmethod", "more": "", "body": "tl.store(o_ptr, n)", "rest": "", **parts}
    return [f.rule for f in check(tmp_path, IMPORTS + KERNEL.format(**filled) + in_wrapper(body))]


def named(tmp_path, body, value, more=""):
    return [f.rule for f in check(tmp_path, IMPORTS + NAMED.format(value) + more + in_wrapper(body))]


@pytest.mark.parametrize("what", ACCEPTED)
def test_a_kernel_may_be_a_member_of_a_class(tmp_path, what):
    text, parts = ACCEPTED[what]
    assert found(tmp_path, text, parts) == []


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_followed_there_as_elsewhere(tmp_path, what):
    rule, text, parts = REFUSED[what]
    assert rule in found(tmp_path, text, parts)


def test_what_ran_is_told_by_the_name_that_triton_has_for_it():
    from passbench.contract import PassFiles

    text = "import triton\nimport triton.language as tl\n" + KERNEL.format(on="", more="", body="pass", rest="")
    assert jit_functions(PassFiles(("a",), {"a.py": text}, ())) == {"fill"}


def test_a_method_may_have_two_names(tmp_path):
    assert named(tmp_path, "z = OP(x, 3)", "t * self.scale * n") == []
    assert named(tmp_path, "z = OP.forward(x)", "t * self.scale * n") == []


@pytest.mark.parametrize("value", ["float(t)", "t.item()", "1 if t > 0 else 2", "t.add_(n)"])
def test_what_it_does_counts_under_both(tmp_path, value):
    assert named(tmp_path, "z = OP(x, 3)", value) != []


def test_a_field_of_its_name_is_not_the_method(tmp_path):
    more = "\nclass Kept:\n    def __init__(self, f):\n        self.forward = f\n"
    assert named(tmp_path, "z = Kept(torch.Tensor.item).forward(x)", "t", more) != []
