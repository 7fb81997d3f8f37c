"""What a worker says of an exception: its causes, and the line of the pass that it came from."""

import pytest
import torch

from passbench.child.failures import explain
from passbench.contract import loaded_rules

PASS = """
import torch


def pattern(x):
    return torch.relu(x)


def replacement_args(x):
    return (x,)


def in_two(x):
    return x.reshape(2, -1)


def run(x):
    return in_two(x)


def replacement_func():
    return run
"""


def test_the_innermost_line_of_the_pass_is_named(tmp_path):
    (tmp_path / "fuse.py").write_text(PASS)
    with loaded_rules(tmp_path, ("fuse",)) as (rule,), pytest.raises(RuntimeError) as failure:
        rule.replacement(torch.zeros(3))
    assert explain(failure.value).startswith("RuntimeError: shape '[2, -1]' is invalid")
    assert explain(failure.value).endswith(" (fuse.py:14, in in_two)")


def test_an_error_that_repeats_its_cause_is_left_out():
    try:
        try:
            raise TypeError("no float")
        except TypeError as cause:
            raise RuntimeError(repr(cause)) from cause
    except RuntimeError as error:
        assert explain(error) == "TypeError: no float"
    try:
        try:
            raise TypeError("no float")
        except TypeError as cause:
            raise RuntimeError("the kernel") from cause
    except RuntimeError as error:
        assert explain(error) == "RuntimeError: the kernel\ncaused by TypeError: no float"


class SaysNothing(ValueError):
    def __str__(self) -> str:
        raise SystemExit(1)

    __repr__ = __str__


def test_an_error_without_a_text_is_named():
    error = RuntimeError("outside")
    error.__cause__ = SaysNothing()
    assert explain(error) == "RuntimeError: outside\ncaused by SaysNothing: its text cannot be made: SystemExit"


class SaysItself(ValueError):
    def __str__(self) -> str:
        return "itself"

    __repr__ = __str__


def test_an_error_that_is_its_own_cause_has_an_end():
    error = SaysItself()
    error.__cause__ = error
    assert explain(error) == "SaysItself"
