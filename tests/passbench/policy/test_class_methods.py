"""What a class of the pass holds: what class methods make, and what names mean in its body."""

import pytest

from tests.passbench.policy.test_policy import check, in_wrapper

IMPORTS = "import dataclasses\nimport enum\nimport typing\n"
OF = "    @classmethod\n    def of(cls, a):\n        return cls({})\n"
DATA = "@dataclasses.dataclass\nclass Kept:\n    a: typing.Any\n" + OF
READ = "host_read"
LARGER = "@dataclasses.dataclass\nclass Larger(Kept):\n    b: typing.Any = 1\n"
OTHERWISE = {
    "a tensor": (DATA.format("a[0]"), "math.floor(Kept.of(x).a)", READ),
    "a field of a derived class": (DATA.format("1, a[0]") + LARGER, "math.floor(Larger.of(x).b)", READ),
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
        READ,
    ),
    "a name that a function binds": (
        "def put(a):\n    global w\n    w = a\nBOUND = put([])\n"
        "class Kept:\n    w = 1\n    a = [w for _ in range(2)]\n",
        "math.floor(Kept.a[0][0])",
        "rebinding",
    ),
    "a length": (DATA.format("a") + "    def __len__(self):\n        return self.a[0]\n", "len(Kept.of(x))", READ),
    "an error": ("class Wrong(ValueError):\n" + OF.format("a[0]"), "Wrong.of(x)", READ),
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


def test_defaults_of_methods_are_the_constants_of_their_class(tmp_path):
    classes = "class Sizes:\n    WARP = 32\n    @staticmethod\n    def of(n, size=WARP):\n        return n // size\n"
    assert found(tmp_path, classes, "Sizes.of(n)") == []
    assert "host_read" in found(tmp_path, classes, "Sizes.of(x[0]) and 1")


def test_a_length_may_be_a_size(tmp_path):
    classes = DATA.format("a") + "    def __len__(self):\n        return self.a.shape[0]\n"
    assert found(tmp_path, classes, "len(Kept.of(x))") == []
