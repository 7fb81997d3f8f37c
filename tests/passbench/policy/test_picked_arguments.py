"""`replacement_args` may name what it picks, and constants of the pass's modules; it computes nothing."""

import pytest

from tests.passbench.policy.test_policy import HEAD, IMPORTS, WRAPPER, check

PICKS = 'return (x, y, "route", 2)'
ACCEPTED = {
    "a name for all": "args = (x, y, 'route', 2)\n    return args",
    "names for some": "'''Pick.'''\n    route, k = 'route', 2\n    return (x, y, route, k)",
    "a tuple in another": "inputs = [x, y]\n    return (*inputs, 'route', 2)",
    "a sum of tuples": "return (x, y) + ('route', 2)",
    "an annotated name": "k: int = 2\n    return x, y, 'route', k",
    "a name bound again": "k = 1\n    k = 2\n    return x, y, 'route', k",
    "a constant of the module": "return (x, y, ROUTE, 2)",
    "a constant of a sibling": "return (x, y, lib.KIND, 2)",
    "numbers of numbers": "return (x, y, float('-inf'), 64**-0.5)",
    "a limit of a type": "return (x, y, torch.finfo(torch.float32).min, 1 / math.sqrt(8.0))",
    "a text without fields": "return (x, y, f'route', 2)",
    "a constant of a class": "return (x, y, Route.ADD, 2)",
    "a member of an enumeration": "return (x, y, Kind.ADD.value, 2)",
    "a constant of a sibling's class": "return (x, y, lib.Route.ADD, lib.Route.SIZE)",
    "infinity": "return (x, y, 'route', -math.inf)",
    "sizes": "return (x, y, (64, 64), 2)",
    "a dict": "config = {'eps': 1e-05, 'sizes': (1, 2), 3: dict(k=ROUTE)}\n    return (x, y, config, 2)",
    "a dict by a call": "return (x, y, dict(eps=1e-05, mode='a'), 2)",
    "a dict with a tensor": "return (x, {'other': y}, 'route', 2)",
    "a tuple of a list": "args = [x, y]\n    return tuple(args + list(('route', 2)))",
}
REFUSED = {
    "a call": "k = x.sum()\n    return (x, y, 'route', 2)",
    "a call that is thrown away": "_ = open('f')\n    return (x, y, 'route', 2)",
    "a value that is computed": "return (x, y, 'route', x + 1)",
    "a sum of tensors": "return (x + y, y, 'route', 2)",
    "a branch": "if x:\n        k = 1\n    return (x, y, 'route', 2)",
    "a loop": "for k in range(3):\n        pass\n    return (x, y, 'route', k)",
    "what is bound later": "return (x, y, 'route', k)\n    k = 2",
    "a name that is bound nowhere": "return (x, y, 'route', k)",
    "a variable of the module": "return (x, y, 'route', TABLE)",
    "a variable that changes": "return (x, y, 'route', COUNT)",
    "a text with a field": "return (x, y, f'{x}', 2)",
    "a member itself": "return (x, y, Kind.ADD, 2)",
    "a field that is computed": "return (x, y, Route.MADE, 2)",
    "a field of a name of its own": "Route = x\n    return (x, y, Route.ADD, 2)",
    "a field of a sibling that is computed": "return (x, y, lib.Route.MADE, 2)",
    "a method": "return (x, y, Route.get, 2)",
    "a function": "return (x, y, 'route', wrapper)",
    "an attribute": "return (x.shape, y, 'route', 2)",
    "a global": "global COUNT\n    COUNT = 3\n    return (x, y, 'route', 2)",
    "float of its own": "return (x, y, float('1'), 2)",
    "a computed key": "return (x, y, {x: 1}, 2)",
    "a dict that computes": "return (x, y, {'k': x + 1}, 2)",
    "a dict in another": "return (x, y, {**TABLE}, 2)",
    "a dict of a loop": "return (x, y, {k: 1 for k in open('f')}, 2)",
    "a dict alone": "return {'x': x}",
    "dict of its own": "return (x, y, dict(k=1), 2)",
    "a text of a text": "return (x, y, 'a' * 3, 2)",
    "a default that runs": "f = lambda k=open('f'): k\n    return (x, y, 'route', 2)",
}
MODULE = "\nROUTE = 'route'\nTABLE = {}\nCOUNT = 0\ndef count():\n    global COUNT\n    COUNT += 1\nTRIED = [count]\n"
MODULE += """
import enum
class Route:
    ADD = 'add'
    MADE = triton.cdiv(3, 2)
    def get(self):
        return 1
class Kind(enum.Enum):
    ADD = 'add'
"""
LIB = "KIND = 'kind'\nclass Route:\n    ADD = KIND\n    SIZE = 3\n    MADE = len(KIND)\n"


def found(tmp_path, picks, more="", body="pass"):
    head = IMPORTS + "import lib\n" + HEAD.replace(PICKS, picks)
    return [f.rule for f in check(tmp_path, head + WRAPPER.format(body=body) + MODULE + more, lib=LIB)]


@pytest.mark.parametrize("what", ACCEPTED)
def test_what_only_picks_is_allowed(tmp_path, what):
    assert found(tmp_path, ACCEPTED[what]) == []


@pytest.mark.parametrize("what", REFUSED)
def test_what_computes_is_refused(tmp_path, what):
    own = next((name for name in ("float", "dict") if what == f"{name} of its own"), None)
    more = f"\ndef {own}(**t):\n    return t\n" if own else ""
    assert "replacement_args" in found(tmp_path, REFUSED[what], more)


def test_items_keep_their_kinds(tmp_path):
    named = "a, b = x, y\n    return (b, a, 'route', 2)"
    assert found(tmp_path, named, body="z = 1 if k > 1 else 2") == []
    assert "host_read" in found(tmp_path, named, body="z = float(x)")
    assert "host_read" in found(tmp_path, "s = (x, 1)\n    return (x, y, s, 2)", body="z = float(route[0])")
    assert found(tmp_path, "return (x, y, (64, 32), 2)", body="h, w = route\n    z = h > w") == []


def test_a_dict_keeps_what_it_holds(tmp_path):
    config = "return (x, y, {'eps': 1e-05, 'n': 2}, 2)"
    assert found(tmp_path, config, body="z = 1 if route['n'] > 1 else route['eps']") == []
    assert found(tmp_path, config, body="route['kept'] = x") == ["container"]
    assert "host_read" in found(tmp_path, "return (x, y, {'t': x}, 2)", body="z = float(route['t'])")
    assert "host_read" in found(tmp_path, "return (x, y, ({'t': x},), 2)", body="z = float(route[0]['t'])")


def test_a_dict_has_no_key_that_a_launch_may_not_have(tmp_path):
    assert found(tmp_path, "return (x, y, {'launch_pdl': True}, 2)") == ["launch"]
    assert found(tmp_path, "return (x, y, [dict(pin_memory=True)], 2)") == ["forbidden_call"]


def test_a_size_times_a_tensor_repeats_it(tmp_path):
    assert "host_read" in found(tmp_path, "return (x, y, (64, 32), 2)", body="z = route * x.sum()")


def test_tuples_within_tuples_do_not_grow_without_end(tmp_path):
    doubled = "\n    ".join(f"a{n + 1} = (a{n}, a{n})" for n in range(40))
    assert found(tmp_path, f"a0 = (x, y)\n    {doubled}\n    return a40") == ["replacement_args"]
