"""What functions get that stand in a table: what the calls out of it give, where nothing else is done with it."""

import pytest

from tests.passbench.policy.test_policy import check, in_wrapper

TABLE = """
def floor(x, n):
    return math.floor(n)

def same(x, n):
    return x

TABLE = {"floor": floor, "same": same}

"""
READING = """
TABLE["floor"](x, x[0])
TABLE["floor"](x, n=x[0])
TABLE["floor"](*x.unbind())
TABLE["same"](x, 1) > 0 and 1
math.floor(TABLE["same"](x[0], 1))
TABLE.get("floor")(x, x[0])
list(map(TABLE["floor"], [x], [x[0]]))
functools.partial(TABLE["floor"], x)(x[0])
""".strip().splitlines()
OTHERWISE = {
    "another name": "OTHER = TABLE\n",
    "an item put in": "def put():\n    TABLE['more'] = floor\nTRIED = [put]\n",
    "global": "def put():\n    global TABLE\n    TABLE = {}\nTRIED = [put]\n",
    "a field": "class Kept:\n    table = TABLE\n",
    "a second table": "OTHERS = [floor]\ndef use(x):\n    return OTHERS[0], OTHERS\nTRIED = [use]\n",
    "an argument": "def use(x):\n    return handed(TABLE)\ndef handed(t):\n    return t\nTRIED = [use]\n",
}


def found(tmp_path, value, more=""):
    return [f.rule for f in check(tmp_path, "import functools\n" + in_wrapper(f"z = {value}") + TABLE + more)]


def test_numbers_stay_numbers(tmp_path):
    assert found(tmp_path, "TABLE['floor'](x, x.numel()) if 'floor' in TABLE else 1") == []


@pytest.mark.parametrize("value", READING)
def test_tensors_are_followed_into_the_functions_of_a_table(tmp_path, value):
    assert "host_read" in found(tmp_path, value)


@pytest.mark.parametrize("what", OTHERWISE)
def test_a_table_that_is_used_otherwise_may_be_called_with_anything(tmp_path, what):
    assert "host_read" in found(tmp_path, "TABLE['floor'](x, 1)", OTHERWISE[what])
