"""`one_hot` gets the number of classes of the graph's own `one_hot`, where -1 lets eager read values, and no other."""

import pytest

from tests.passbench.policy.test_policy import check

IMPORTS = "import torch\nimport torch.nn.functional as F\n"
PASS = """
def pattern(x, d):
    return {pattern}

def replacement_args(x, d):
    return ({picked})

@torch.fx.wrap
def wrapper(x, d):
    return {value}

def replacement_func():
    return wrapper
"""


def rules_of(tmp_path, pattern, value="F.one_hot(x, d).float()", picked="x, d", more=""):
    text = IMPORTS + PASS.format(pattern=pattern, value=value, picked=picked) + more
    return [finding.rule for finding in check(tmp_path, text)]


@pytest.mark.parametrize("pattern", ["F.one_hot(x, d).float()", "torch.nn.functional.one_hot(x, num_classes=d) * 2"])
@pytest.mark.parametrize("value", ["F.one_hot(x, d).float()", "torch.nn.functional.one_hot(x, num_classes=d)"])
def test_the_number_that_the_pattern_gives_to_its_own_may_be_any(tmp_path, pattern, value):
    assert rules_of(tmp_path, pattern, value) == []


@pytest.mark.parametrize("pattern", ["torch.relu(x).sum(d)", "F.one_hot(d, 4) + x", "F.one_hot(x, 4).sum(d)"])
def test_another_number_of_the_graph_may_be_none(tmp_path, pattern):
    assert rules_of(tmp_path, pattern) == ["host_read"]


@pytest.mark.parametrize("bound", ["m, d = d, 5", "m = d; d += 1", "m = d\n    for d in (5,): pass"])
def test_a_name_that_the_pattern_binds_is_no_number_of_the_graph(tmp_path, bound):
    text = PASS.replace("return {pattern}", f"{bound}\n    return {{pattern}}")
    given = text.format(pattern="F.one_hot(x, d).sum(m)", picked="x, d", value="F.one_hot(x, d)")
    assert [finding.rule for finding in check(tmp_path, IMPORTS + given)] == ["host_read"]


def test_another_parameter_may_be_none(tmp_path):
    assert rules_of(tmp_path, "F.one_hot(x, d)", picked="d, x") == ["host_read"]


def test_a_function_that_others_call_too_may_get_another_number(tmp_path):
    assert rules_of(
        tmp_path, "F.one_hot(x, d)", more="\ndef other(x, n):\n    return wrapper(x, n)\nTRIED = [other]\n"
    ) == ["host_read"]


def test_a_number_bound_again_may_be_none(tmp_path):
    assert rules_of(tmp_path, "F.one_hot(x, d)", "[d := -1, F.one_hot(x, d)]") == ["host_read"]
    matched = "d\n    match -1:\n        case d:\n            return F.one_hot(x, d)"
    assert rules_of(tmp_path, "F.one_hot(x, d)", matched) == ["host_read"]
