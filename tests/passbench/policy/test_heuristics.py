"""A heuristic is a function whose value is a number, whatever it is given."""

import pytest

from tests.passbench.policy.test_policy import check, in_wrapper

TEXT = """
{more}
@triton.heuristics({{"WIDE": {value}}})
@triton.jit
def other(x_ptr, n, WIDE: tl.constexpr):
    tl.store(x_ptr, n)
"""
NAMED = "def pick(args):\n    {}\n"
ACCEPTED = {
    "a product of numbers": ("lambda a: 16 * max(4, a['n'] % 3)", ""),
    "a size of an element": ("lambda a: 512 // a['x_ptr'].element_size()", ""),
    "a function": ("pick", NAMED.format("return min(1024, triton.next_power_of_2(args['n']))")),
    "a function with a variable": ("pick", NAMED.format("w = 4\n    if args['n'] > 9:\n        w *= 2\n    return w")),
    "a function with branches": ("pick", NAMED.format("if args['n'] > 9:\n        return 8\n    return 4")),
}
REFUSED = {
    "a tensor": ("heuristic", "lambda a: a['x_ptr']", ""),
    "a tensor times a number": ("heuristic", "lambda a: 2 * a['x_ptr']", ""),
    "a function that returns a tensor": ("heuristic", "pick", NAMED.format("return args['x_ptr']")),
    "a function that may return one": (
        "heuristic", "pick", NAMED.format("w = 4\n    if args['n'] > 9:\n        w = args['x_ptr']\n    return w"),
    ),
    "a variable that a loop binds": (
        "heuristic", "pick", NAMED.format("w = 4\n    for w in (args['x_ptr'],):\n        pass\n    return w"),
    ),
    "a variable that a tuple binds": (
        "heuristic", "pick", NAMED.format("w = 4\n    w, v = args['x_ptr'], 1\n    return w"),
    ),
    "a variable of the module": ("heuristic", "pick", "W = {}\n" + NAMED.format("return W")),
    "a parameter": ("heuristic", "pick", "def pick(args, w=4):\n    return w\n"),
    "nothing": ("heuristic", "pick", NAMED.format("pass")),
    "a function that reads": ("host_read", "pick", NAMED.format("return int(args['x_ptr'].sum())")),
    "a generator": ("heuristic", "pick", NAMED.format("yield 1\n    return 1")),
    "a function of the pass with a name of Python's": (
        "heuristic", "lambda a: min(a['x_ptr'])", "def min(t):\n    return t\n",
    ),
    "a variable with a name of Python's": (
        "heuristic", "pick", NAMED.format("min = torch.neg\n    return min(args['x_ptr'])"),
    ),
    "a method of the pass with a name of a tensor's": (
        "heuristic", "lambda a: K['a'].dim()", "K = {}\nclass P:\n    def dim(self):\n        return torch.ones(2)\n",
    ),
    "a field of the pass with a name of a tensor's": (
        "heuristic", "lambda a: P(torch.ones).dim()",
        "class P:\n    def __init__(self, dim):\n        self.dim = dim\n",
    ),
    "a decorated one": ("heuristic", "pick", "@functools.lru_cache\n" + NAMED.format("return 4")),
}  # fmt: skip


def found(tmp_path, value, more):
    text = "import functools\n" + in_wrapper("other[(1,)](x, n)") + TEXT.format(value=value, more=more)
    return [f.rule for f in check(tmp_path, text)]


@pytest.mark.parametrize("what", ACCEPTED)
def test_numbers_are_allowed(tmp_path, what):
    assert found(tmp_path, *ACCEPTED[what]) == []


@pytest.mark.parametrize("what", REFUSED)
def test_what_may_be_a_tensor_is_refused(tmp_path, what):
    rule, value, more = REFUSED[what]
    assert rule in found(tmp_path, value, more)


def test_a_name_of_a_sibling_is_what_it_is_there(tmp_path):
    lib = "class triton:\n    @staticmethod\n    def cdiv(t):\n        return t\n"
    lib += "def pick(args):\n    return triton.cdiv(args['x_ptr'])\n"
    text = "import lib\n" + in_wrapper("other[(1,)](x, n)") + TEXT.format(value="lib.pick", more="")
    assert "heuristic" in [f.rule for f in check(tmp_path, text, lib=lib)]
