"""Typing errors as a newcomer makes them: one finding says which name does not exist, and which one does."""

import sys
import time
from types import ModuleType

import pytest

from passbench.contract import NAMES_FILE, PassFiles
from passbench.policy.check import check_files
from passbench.policy.suggestions import nearest
from passbench.policy.unknown_names import missing

PASS = """import math
import torch
import triton
import triton.language as tl
import helper

def pattern(x):
    return torch.relu(x)

def replacement_args(x):
    return (x,)

@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, tl.maximum(x, 0.0), mask=offsets < n)

@torch.fx.wrap
def relu_of_one(x):
    out = torch.empty_like(x)
    n = x.numel()
    kernel[(triton.cdiv(n, helper.BLOCK),)](x, out, n, BLOCK=256)
    return out

def replacement_func():
    return relu_of_one
"""


def found(*changes: tuple[str, str], before: str = "") -> list:
    text = before + PASS
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    files = {"rule.py": text, "helper.py": "BLOCK = 256\n", NAMES_FILE: '["rule"]'}
    return check_files(PassFiles(("rule",), files, ()))


def test_the_pass_is_allowed():
    assert found() == []


def test_a_sibling_is_not_taken_for_a_library_of_its_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "sizes_as_in_a_library", ModuleType("sizes_as_in_a_library"))
    rule = PASS.replace("import helper", "from sizes_as_in_a_library import SIZE").replace("helper.BLOCK", "SIZE")
    files = {"rule.py": rule, "sizes_as_in_a_library.py": "SIZE = 256\n", NAMES_FILE: '["rule"]'}
    assert check_files(PassFiles(("rule",), files, ())) == []


SLIPS = {
    "in a kernel": (("tl.load", "tl.laod"), 16, "triton.language has no laod", "did you mean tl.load?"),
    "the address of a store": (("tl.store", "tl.sotre"), 17, "triton.language has no sotre", "tl.store?"),
    "an address given to no function": (("tl.maximum(x,", "tl.maximun(x_ptr,"), 17, "has no maximun", "tl.maximum?"),
    "a parameter": (("tl.load(x_ptr", "tl.load(x_prt"), 16, "x_prt is bound nowhere in rule.py", "mean x_ptr?"),
    "a helper of kernels": (("tl.load(x_ptr", "laod_row(x_ptr"), 16, "laod_row is bound nowhere", "bind it"),
    "tl": (("import triton.language as tl\n", ""), 14, "tl is not imported", "`import triton.language as tl`"),
    "triton": (("import triton\n", ""), 12, "triton is not imported", "write `import triton`"),
    "torch": (("import torch\n", ""), 7, "torch is not imported", "write `import torch`"),
    "torch in host code": (("empty_like", "empty_lik"), 21, "torch has no empty_lik", "did you mean torch.empty_like?"),
    "triton in host code": (("triton.cdiv", "triton.cdv"), 23, "triton has no cdv", "did you mean triton.cdiv?"),
    "nothing near": (("torch.empty_like", "torch.qqqqq"), 21, "torch has no qqqqq", "use what this version has"),
    "a decorator": (("triton.jit", "triton.jitt"), 13, "triton has no jitt", "did you mean triton.jit?"),
    "a kernel in host code": (("    kernel[", "    kernl["), 23, "kernl is bound nowhere", "did you mean kernel?"),
    "a built-in": (("x.numel()", "mni(x.shape)"), 22, "mni is bound nowhere", "did you mean min?"),
    "a sibling's constant": (("helper.BLOCK", "helper.BLOKC"), 23, "helper.py has no BLOKC", "mean helper.BLOCK?"),
    "the replacement": (("return relu_of_one", "return relu_of_noe"), 27, "relu_of_noe is bound", "mean relu_of_one?"),
    "a sibling's function": (("return relu_of_one", "return helper.f"), 27, "helper.py has no f", "define it there"),
    "what is picked": (("return (x,)", "return (x, scale)"), 11, "scale is bound nowhere", "bind it"),
    "an operation": (("torch.relu(x)", "torch.rleu(x)"), 8, "torch has no rleu", "did you mean torch.relu?"),
    "an operand": (("torch.relu(x)", "torch.relu(xs)"), 8, "xs is bound nowhere", "bind it"),
    "an import": (("import math", "from torch import empty_lik"), 1, "torch has no empty_lik", "mean empty_like?"),
}


@pytest.mark.parametrize("what", SLIPS)
def test_a_slip_is_one_finding_that_names_it(what):
    change, line, reason, advice = SLIPS[what]
    (finding,) = found(change)
    assert (finding.rule, finding.line) == ("unknown_name", line)
    assert reason in finding.message and advice in finding.message


def test_a_name_is_told_once():
    (first, second) = found(
        ("tl.load", "tl.laod"), ("tl.maximum(x, 0.0)", "tl.laod(x_ptr)"), ("empty_like", "emptylike")
    )
    assert (first.line, second.line) == (16, 21)


ELSEWHERE = {
    "another line": ("n = x.numel()", "n = x.sum().item()", "host_read", 22),
    "the same line": ("empty_lik(x)", "empty_lik(x[x.sum().item()])", "host_read", 21),
}


@pytest.mark.parametrize("where", ELSEWHERE)
def test_what_does_not_follow_from_it_is_told_too(where):
    old, new, rule, line = ELSEWHERE[where]
    first, *others = found(("empty_like", "empty_lik"), (old, new))
    assert (first.rule, first.line) == ("unknown_name", 21)
    assert (rule, line) in [(f.rule, f.line) for f in others]


BOUND = {
    "a comprehension": "n = max([size for size in x.shape])",
    "an error": "try:\n        n = x.numel()\n    except ValueError as error:\n        raise TypeError() from error",
    "a function that sets a global": "n = x.numel()\n    global LAST\n    LAST = n",
    "a match": "n = x.numel()\n    match n:\n        case more:\n            n = more",
    "an annotation that Python leaves alone": "n: Number = x.numel()",
    "a module's own names": "n = x.numel() if __name__ else 1",
}


@pytest.mark.parametrize("how", BOUND)
def test_what_is_bound_is_not_unknown(how):
    rules = [f.rule for f in found(("n = x.numel()", BOUND[how]), before="LAST = 0\n")]
    assert "unknown_name" not in rules


def test_postponed_annotations_name_anything():
    named = ("def relu_of_one(x):", "def relu_of_one(x: Tensr = eval('1')):")
    postponed = found(named, before="from __future__ import annotations\n")
    assert "forbidden_name" in [f.rule for f in postponed] and "unknown_name" not in [f.rule for f in postponed]
    assert "unknown_name" in [f.rule for f in found(named)]


def test_an_import_in_a_try_may_fail():
    attempt = "try:\n    from triton.language import newer\nexcept ImportError:\n    newer = None\n"
    assert found(before=attempt) == []
    other = attempt.replace("newer = None", "from triton.language.extra.libdevice import {} as newer")
    assert [f.rule for f in found(before=other.format("exp"))] == ["rebinding"]


@pytest.mark.parametrize("name", ["torch.ops.none.such", "torch.onnx", "torch.nn.functional.relu", "no_library.f"])
def test_what_may_exist_is_not_missing(name):
    assert missing(name) is None


def test_the_nearest_has_the_same_letters():
    assert nearest("laod", ["loads", "load", "laid"]) == "load"
    assert nearest("_private", ["_privat"]) is None
    assert nearest("x" * 41, ["x" * 40]) is None


UNKNOWN = {
    "in host code": "def many(x):\n    return ["
    + ",\n".join(f"torch.empty_lik{n}(x)" for n in range(5000))
    + "]\nKEPT = [many]\n",
    "bare": "def many(x):\n    return [" + ",\n".join(f"relu_of_on{n}(x)" for n in range(5000)) + "]\nKEPT = [many]\n",
    "imports": "from torch import " + ", ".join(f"empty_lik{n}" for n in range(5000)) + "\n",
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_many_unknown_names_take_seconds(what):
    begin = time.process_time()
    findings = found(before=UNKNOWN[what])
    assert time.process_time() - begin < 3
    assert 1 <= len([f for f in findings if f.rule == "unknown_name"]) <= 20


CONTRACT = {
    "no pattern": ("def pattern(x):\n    return torch.relu(x)\n", "", "pattern", "has no pattern()"),
    "no arguments": ("def replacement_args(x):\n    return (x,)\n", "", "replacement_args", "no replacement_args()"),
    "no replacement": (
        "def replacement_func():\n    return relu_of_one\n", "", "replacement_func", "has no replacement_func()"
    ),
    "other parameters": ("def replacement_args(x):\n    return (x,)", "def replacement_args(y):\n    return (y,)",
                         "replacement_args", "`def replacement_args(x)`"),
    "a default": ("def pattern(x):", "def pattern(x=1):", "pattern", "plain"),
    "a keyword alone": ("replacement_args(x):", "replacement_args(*, x):", "replacement_args", "plain"),
    "an argument": ("def replacement_func():", "def replacement_func(x=1):", "replacement_func", "takes no arguments"),
}  # fmt: skip


@pytest.mark.parametrize("what", CONTRACT)
def test_what_the_contract_needs_is_told(what):
    old, new, rule, message = CONTRACT[what]
    (finding,) = found((old, new))
    assert finding.rule == rule and message in finding.message
