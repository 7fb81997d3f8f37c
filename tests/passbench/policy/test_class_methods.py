"""Instances that a class method makes by its first parameter: of the class, or of one that derives from it."""

import pytest

from tests.passbench.policy.test_policy import check, in_wrapper

IMPORTS = "import dataclasses\nimport enum\nimport typing\n"
OF = "    @classmethod\n    def of(cls, a):\n        return cls({})\n"
DATA = "@dataclasses.dataclass\nclass Kept:\n    a: typing.Any\n" + OF
LARGER = "@dataclasses.dataclass\nclass Larger(Kept):\n    b: typing.Any = 1\n"
OTHERWISE = {
    "a tensor": (DATA.format("a[0]"), "math.floor(Kept.of(x).a)", "host_read"),
    "a field of a derived class": (DATA.format("1, a[0]") + LARGER, "math.floor(Larger.of(x).b)", "host_read"),
    "a function by default": (
        "def same(a):\n    return a\n" + DATA.format("1").replace("typing.Any", "typing.Any = same"),
        "len(str(Kept.of(x)))",
        "forbidden_name",
    ),
    "an iterator": (DATA.format("iter([1])"), "len(str(Kept.of(x)))", "forbidden_name"),
    "an iterator without a class method": (DATA.format("1"), "len(str(Kept(iter([1]))))", "forbidden_name"),
    "a member that is looked up": (
        "class One(enum.Enum):\n    A = 1\n" + OF.format("a.sum()"),
        "One.of(x) is One.A",
        "host_read",
    ),
    "an error": ("class Wrong(ValueError):\n" + OF.format("a[0]"), "Wrong.of(x)", "host_read"),
}  # fmt: skip


def found(tmp_path, classes, value):
    return [f.rule for f in check(tmp_path, IMPORTS + in_wrapper(f"z = {value}") + "\n" + classes)]


@pytest.mark.parametrize("what", OTHERWISE)
def test_what_instances_hold_is_known(tmp_path, what):
    classes, value, rule = OTHERWISE[what]
    assert rule in found(tmp_path, classes, value)


def test_numbers_stay_numbers(tmp_path):
    assert (
        found(tmp_path, DATA.format("a.shape[0]") + LARGER, "math.floor(Larger.of(x).b) + len(str(Kept.of(x)))") == []
    )
