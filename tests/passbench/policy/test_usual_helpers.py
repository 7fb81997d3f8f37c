"""Helpers as compiler engineers write them: partial launchers, enumerations that parse, caches of a class, cases with a
rest; and what would hide behind each of them."""

import pytest

from tests.passbench.policy.test_policy import IMPORTS, check, in_wrapper

OWN = """
import enum
import itertools
import typing

def launch(x, y, *, scale=1.0, block=256):
    out = torch.empty_like(x)
    kernel[(triton.cdiv(out.numel(), block),)](x, y, out, out.numel(), BLOCK=block)
    return out

def floor(a, b=1):
    return math.floor(b)

wide = functools.partial(launch, block=1024)
narrow = functools.partial(wide, scale=0.5, block=64)
LAUNCHES = {"a": functools.partial(launch, block=64), "b": wide}
floors = functools.partial(floor, b=2)
OTHERS = [floors]

def guard(fn):
    @functools.wraps(fn)
    def inner(*args, **kwargs):
        return fn(*(a.contiguous() if isinstance(a, torch.Tensor) else a for a in args), **kwargs)

    return inner

@guard
def scaled(t, up, block=64):
    return t * math.floor(up / block)

class Tuned:
    def __call__(self, t, *rest, route=1, **meta):
        return t * math.floor(meta["block"] + route)

TUNED = Tuned()

class Act(enum.IntEnum):
    NONE = 0
    RELU = 1

    @property
    def cheap(self):
        return self in (Act.NONE, Act.RELU)

    @classmethod
    def parse(cls, name):
        return cls[name] if name in [one.name for one in cls] else cls(0)

    def warps(self, n):
        return min(n, 8 if self.cheap else 4)

class Op(enum.Enum):
    DOWN = ("down", floor, 0.5)

    def __init__(self, label, rule, by):
        self.label, self.rule, self.by = label, rule, by

class Device:
    made = {}

    def __init__(self, index):
        self.index = index

    @classmethod
    def of(cls, index):
        if index not in cls.made:
            cls.made[index] = cls(index)
        return cls.made[index]

    @classmethod
    def keep(cls, value):
        cls.made[0] = value

class Range:
    def __init__(self, stop):
        self.stop = stop

    def __bool__(self):
        return self.stop > 0

def say(*words, **options):
    if VERBOSE:
        print("[pass]", *words, **options)

VERBOSE = False

class Options(typing.TypedDict, total=False):
    num_warps: int

@typing.runtime_checkable
class Sized(typing.Protocol):
    def warps(self, n): ...

"""
HONEST = """
z = (wide if n > 64 else narrow)(x, y)
z = LAUNCHES["a"](x, y, scale=2.0)
run = functools.partial(launch, x, block=64 * k); z = run(y)
z = Act.parse("RELU").warps(n) + [one.warps(n) for one in Act][0]
z = range(Device.of(n).index)
z = scaled(x, n, block=16) + scaled(y, 2) + TUNED(x, y, route=2, block=n)
z = [x * one.by for one in Op][0] * Op["DOWN"].rule(1, n)
z = next(itertools.dropwhile(lambda b: b < n, (16, 64, 256)), 256)
z = isinstance(Act.NONE, Sized) or not Range(n)
if n: low = functools.partial(floor, 1)
else: low = functools.partial(floor, 2)
z = low(n)
say("n", n, end="", flush=True)
"""
CASE = "match tuple(x.shape):\n    case (rows, *rest):\n        z = {}\n    case _:\n        z = 1"
FAULTS = {
    "an argument behind a guard": "z = scaled(x, x.sum())",
    "a named argument behind a guard": "z = scaled(x, 1, block=x.sum())",
    "what is collected by name": "z = TUNED(x, block=x.sum())",
    "a late argument": "z = floors(1, b=x.sum())",
    "a late argument of a local one": "run = functools.partial(floor, 1)\nz = run(x.sum())",
    "a fixed argument": "run = functools.partial(floor, b=x.sum())\nz = run(1)",
    "a function of a member": "z = Op['DOWN'].rule(1, x.sum())",
    "a text of a member": "z = Op.DOWN.label * x.sum()",
    "whether an instance is true": "z = not Range(x)",
    "a field of a class": "Device.keep(x)\nz = float(Device.made[0])",
    "an enumeration that is handed on": "z = [Act][0].warps(x, 2)",
    "what is taken while": "z = list(itertools.takewhile(lambda t: t, [x.sum()]))",
    "the rest of a case": CASE.format("rest * x.sum()"),
}


def found(tmp_path, body: str) -> list[str]:
    return [f.rule for f in check(tmp_path, IMPORTS + in_wrapper(body) + OWN)]


def test_helpers_are_followed(tmp_path):
    assert found(tmp_path, HONEST.strip() + "\n" + CASE.format("rows + len(rest)")) == []


@pytest.mark.parametrize("what", FAULTS)
def test_what_would_hide_behind_them_is_refused(tmp_path, what):
    assert "host_read" in found(tmp_path, FAULTS[what])


SAID = ("say(n, file=TUNED)", "say(n, **{'file': TUNED})", "f = say\nf(n, file=TUNED)", "functools.partial(say, n)()")


@pytest.mark.parametrize("call", SAID)
def test_options_of_print_alone_go_to_it(tmp_path, call):
    assert "forbidden_name" in found(tmp_path, call)
