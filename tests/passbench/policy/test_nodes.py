"""The nodes that the policy goes through are all of Python's, but for contexts, and what a finding quotes of them."""

import ast

import pytest

from passbench.policy.nodes import children, long_number, quoted, walk

EVERYTHING = """
from . import one as two
import three.four as five
@decorated(1, *rest, named=2, **more)
class Kept(Base, metaclass=Meta):
    field: int = 3
async def waits(a, /, b: int = 1, *c, d=2, **e) -> str:
    global g
    async with x as y, z: await p
    async for i in j: yield k
    else: del l[0], m.n
    return [q async for q in r if s]
try: raise t from u
except* (V, W) as w: assert v, f"{a!r:>{b}} {c}"
else: pass
finally: a.b[c:d:e, ...] += -f @ g if not h < i in j else k or l and m
while (n := 1): break
else: continue
match subject:
    case {"a": 1, **rest} | Point(0, y=[_, *others]) as found if found: lambda x=1, *y: (x, *y)
    case -1 | None | "b" | module.NAME: {**a, b: {c, d}}
with a: b = {k: v for k, v in w for x in y}, (z for z in z), [*b]
if a:
    for b in c: pass
    def f():
        nonlocal d
        try: pass
        except E as e: pass
"""


def test_children_are_those_of_python_without_contexts():
    tree = ast.parse(EVERYTHING)
    for node in ast.walk(tree):
        expected = [n for n in ast.iter_child_nodes(node) if not isinstance(n, ast.expr_context)]
        assert children(node) == expected, ast.dump(node)
    assert walk(tree) == [n for n in ast.walk(tree) if not isinstance(n, ast.expr_context)]
    seen = {type(node) for node in walk(tree)}
    unseen = {kind.__name__ for base in (ast.stmt, ast.pattern) for kind in base.__subclasses__() if kind not in seen}
    assert unseen <= {"TypeAlias"}, "Python 3.12 has it"


@pytest.mark.parametrize(
    "written, text",
    [("a.b(c)[0]", "a.b(c)[0]"), (f"f({'x, ' * 60})", "f(…)"), (f"[{'x, ' * 60}]", "a long expression")],
)
def test_a_finding_quotes_short_expressions_and_names_long_ones(written, text):
    assert quoted(ast.parse(written, mode="eval").body) == text


@pytest.mark.parametrize(
    "written", [hex, str, bin, lambda number: f"0x_{number:_x}"], ids=["hex", "decimal", "binary", "_"]
)
def test_a_long_number_is_found_from_its_first_bit_too_many(written):
    for number, found in ((2**4096, True), (2**4096 - 1, False)):
        text = f"x = f(a, 7 + {written(number)})"
        assert (long_number(text, ast.parse(text)) is not None) is found
