"""How the parts of a pass are put together: constants in patterns, `torch.fx.wrap` by assignment, names that a sibling
has from another."""

import pytest

from tests.passbench.policy.test_policy import HEAD, WRAPPER, check

KERNEL = "import triton\nimport triton.language as tl\n@triton.jit\ndef fill(o_ptr, n):\n    tl.store(o_ptr, {})\n"
PLAIN = HEAD + WRAPPER.replace("@torch.fx.wrap\n", "").format(body="pass")
ADD = "torch.relu(x + y)"


def rules(tmp_path, text, **others):
    return [f.rule for f in check(tmp_path, text, **others)]


def with_pattern(value, more=""):
    return HEAD.replace("def pattern", more + "def pattern").replace(f"return {ADD}", value) + WRAPPER.format(
        body="pass"
    )


@pytest.mark.parametrize(
    "value, more",
    [
        ("return torch.relu(x + y * EPS)", "EPS = 1e-5\n"),
        ("return F.layer_norm(x + y, SHAPE)", "import torch.nn.functional as F\nSHAPE = (64,)\n"),
        ("t = x + y\n    del x\n    return torch.relu(t)", ""),
        ("return torch.where(y, x, torch.finfo(torch.float16).min)", ""),
    ],
)
def test_a_pattern_may_name_constants(tmp_path, value, more):
    assert rules(tmp_path, with_pattern(value, more)) == []


@pytest.mark.parametrize(
    "value, more",
    [
        ("return torch.relu(x + y * EPS)", "EPS = 1e-5\nEPS = 2e-5\n"),
        ("return torch.relu(x + y * EPS)", "EPS = {}\n"),
        ("return torch.relu(x + y * EPS)", "EPS = torch.ones(3)\n"),
        ("del x.shape\n    return torch.relu(y)", ""),
        ("return torch.ops.aten(x, y)", ""),
        ("return torch.relu(x + y * torch.finfo(open('f')).min)", ""),
        ("return torch.relu(x + y * torch.finfo(torch.float16).smallest)", ""),
    ],
)
def test_a_pattern_names_nothing_else(tmp_path, value, more):
    assert rules(tmp_path, with_pattern(value, more)) != []


@pytest.mark.parametrize("line", ["wrapper = torch.fx.wrap(wrapper)", "_ = torch.fx.wrap(wrapper)"])
def test_wrap_gives_back_what_it_gets(tmp_path, line):
    assert rules(tmp_path, PLAIN + line + "\n") == []


def test_what_is_wrapped_under_another_name_is_followed(tmp_path):
    more = "def reads(x, y, route, k):\n    return {}\nfused = torch.fx.wrap(reads)\n"
    text = PLAIN.replace("return wrapper", "return fused").replace(ADD, "torch.relu(torch.add(x, y))")
    assert rules(tmp_path, text + more.format("x + y")) == []
    assert "host_read" in rules(tmp_path, text + more.format("float(x)"))
    assert "rebinding" in rules(tmp_path, PLAIN + more.format("x + y") + "wrapper = torch.fx.wrap(reads)\n")
    assert rules(tmp_path, PLAIN + "fused = torch.fx.wrap(torch.relu)\n") != []


def test_a_sibling_may_hand_on_what_it_has_imported(tmp_path):
    text = "from lib import fill\n" + HEAD + WRAPPER.format(body="fill[(1,)](out, n)")
    between = "from pass_dir.kernels import fill\n"
    assert rules(tmp_path, text, lib=between, kernels=KERNEL.format("n")) == []
    assert "address" in rules(tmp_path, text, lib=between, kernels=KERNEL.format("o_ptr"))
    assert "launch" in rules(tmp_path, text.replace("(out, n)", "(out)"), lib=between, kernels=KERNEL.format("n"))


@pytest.mark.parametrize("name", ["os", "ctypes", "_private", "missing"])
def test_what_it_hands_on_is_what_it_is_there(tmp_path, name):
    text = f"from lib import {name} as found\n" + HEAD + WRAPPER.format(body="z = found.environ")
    assert rules(tmp_path, text, lib="import os\nimport ctypes\nfrom os import path as _private\n") != []


def test_siblings_that_import_from_each_other_end(tmp_path):
    text = "from lib import fill\n" + HEAD + WRAPPER.format(body="z = fill")
    assert rules(tmp_path, text, lib="from other import fill\n", other="from lib import fill\n") != []
