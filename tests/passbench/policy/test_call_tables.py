"""What functions get that are values: of a table the calls out of it give it, where nothing else is done with it; all
others get what calls give that name no function, and anything where a library may call them."""

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
    "another name": ("OTHER['floor'](x, {})", "OTHER = TABLE\n"),
    "an item put in": ("TABLE['more'](x, {})", "def put():\n    TABLE['more'] = floor\nTRIED = [put]\n"),
    "global": ("TABLE['floor'](x, {})", "def put():\n    global TABLE\n    TABLE = {}\nTRIED = [put]\n"),
    "a second table": ("OTHERS[0](x, {})", "OTHERS = [floor]\n"),
    "a table of pairs": ("next(f for f, size in PAIRS if n < size)(x, {})", "PAIRS = [(floor, 16), (same, 32)]\n"),
    "an argument": ("handed(TABLE)['floor'](x, {})", "def handed(t):\n    return t\n"),
    "a function": ("handed(floor, x, {})", "def handed(f, x, n):\n    return f(x, n=n)\n"),
    "a default": ("handed(x, {})", "def handed(x, n, f=floor):\n    return f(x, n)\n"),
    "a choice": ("(floor if n < 3 else same)(x, {})", ""),
    "a variable": ("[f(x, {}) for f in (floor, same)]", ""),
    "what is asked for": ("TABLE.get(route, same)(x, {})", ""),
    "types": ("TYPES[x.dtype](x, {})", "TYPES = {torch.float16: floor, torch.float32: same}\n"),
    "a field of an instance": (
        "KEPT.run(x, {})",
        "class Kept:\n    def __init__(self, f):\n        self.f = f\n\n    def run(self, x, n):\n"
        "        return self.f(x, n)\nKEPT = Kept(floor)\n",
    ),
    "what a decorator registers": (
        "ENTRIES[route](x, {})",
        "ENTRIES = {}\ndef register(*keys):\n    def deco(f):\n        for key in keys:\n            ENTRIES[key] = f\n"
        "        return f\n    return deco\n@register('route')\ndef third(x, n):\n    return math.floor(n)\n",
    ),
    "arguments one by one": ("handed(floor, x, {})", "def handed(f, *args):\n    return f(*args)\n"),
}
"""Ways in which a function is a value, each with a place for the number that it gets."""
MORE = """
def first(n):
    return math.floor(n)

def second(m, n=1):
    return math.floor(n)

def keyed(key=first):
    return key

TRIED = [first, second]

"""
BY_LIBRARIES = {
    "map": "list(map(TRIED[0], [x]))",
    "a map of a variable": "[list(map(f, [x])) for f in TRIED]",
    "a map of what may be a tensor": "list(map([first, x][0], [x]))",
    "a map of unpacked arguments": "list(map(*(TRIED[0], [x])))",
    "a filter": "list(filter(TRIED[0], [x]))",
    "an order": "sorted([1, 2], key=TRIED[0])",
    "the largest": "max([x, x], key=keyed())",
    "the largest by unpacked arguments": "max([x, x], **{'key': TRIED[0]})",
    "a sorted list": "[x.shape].sort(key=TRIED[0])",
    "reduce": "functools.reduce(TRIED[1], [x, x])",
    "a partial function": "functools.partial(TRIED[1], 1)(x)",
    "accumulate": "list(itertools.accumulate([x, x], TRIED[1]))",
    "accumulate by name": "list(itertools.accumulate([x, x], func=TRIED[1]))",
    "a grid": "kernel[TRIED[0]](x, y, out, n, BLOCK=1)",
    "a grid by a variable": "[kernel[f](x, y, out, n, BLOCK=1) for f in TRIED]",
    "a Launch's grid": "Launch(kernel, TRIED[0], n=3, BLOCK=16)(x, y, out)",
    "a context": "contextlib.nullcontext(TRIED[0])",
}
OF_CLASSES = {
    "a method by a table": ("Kept().run()", "class Kept:\n    run = TRIED[0]\n"),
    "a method by a name": ("Kept().run()", "class Kept:\n    run = first\n"),
    "a default of a dataclass": (
        "Kept(v=x).run()",
        "import dataclasses\n@dataclasses.dataclass\nclass Kept:\n    run: object = first\n    v: object = None\n",
    ),
    "what a property returns": (
        "Kept().run(x)",
        "class Kept:\n    @property\n    def run(self):\n        return TRIED[0]\n",
    ),
    "what a cached property returns": (
        "Kept().run(x)",
        "class Kept:\n    @functools.cached_property\n    def run(self):\n        return first\n",
    ),
    "what a call that is a property returns": (
        "KEPT(x)",
        "class Kept:\n    @property\n    def __call__(self):\n        return first\nKEPT = Kept()\n",
    ),
    "what a method returns": (
        "Kept().run()(x)",
        "class Kept:\n    def run(self):\n        return first\n",
    ),
    "what a call of an instance returns": (
        "KEPT()(x)",
        "class Kept:\n    def __call__(self):\n        return first\nKEPT = Kept()\n",
    ),
    "a function of a sibling's table": ("lib.KEPT[0](x)", "import lib\n"),
    "a field of a method's name": (
        "Kept(first).run(x)",
        "class Kept:\n    def __init__(self, f):\n        self.run = f\n"
        "class Other:\n    def run(self, x):\n        return x\n",
    ),
    "a table of a class": ("n", "class Kept:\n    table = TRIED\n"),
    "a hook of a configuration": ("n", "CONFIGS = [triton.Config({'BLOCK': 16}, pre_hook=TRIED[0])]\n"),
    "what prunes": (
        "n",
        "@triton.autotune([], key=['n'], prune_configs_by={'early_config_prune': TRIED[0]})\n@triton.jit\n"
        "def other(x_ptr, n):\n    tl.store(x_ptr, n)\n",
    ),
    "what a decorator returns": (
        "n",
        "def deco(f):\n    def inner(x):\n        return f(math.floor(x))\n    return inner\n"
        "@deco\ndef third(x):\n    return x\n"
        "def replacement_func():\n    return third\n",
    ),
}


def found(tmp_path, value, more=""):
    return [f.rule for f in check(tmp_path, "import functools\n" + in_wrapper(f"z = {value}") + TABLE + more)]


def test_numbers_stay_numbers(tmp_path):
    assert found(tmp_path, "TABLE['floor'](x, x.numel()) if 'floor' in TABLE else 1") == []


@pytest.mark.parametrize("value", READING)
def test_tensors_are_followed_into_the_functions_of_a_table(tmp_path, value):
    assert "host_read" in found(tmp_path, value)


@pytest.mark.parametrize("what", OTHERWISE)
def test_a_function_that_is_a_value_gets_what_calls_give(tmp_path, what):
    value, more = OTHERWISE[what]
    assert found(tmp_path, value.format(1), more) == []
    assert "host_read" in found(tmp_path, value.format("x[0]"), more)


def test_numbers_of_a_function_that_is_a_value_stay_numbers(tmp_path):
    assert found(tmp_path, "[f(n) for f in TRIED]", MORE) == []


@pytest.mark.parametrize("what", BY_LIBRARIES)
def test_a_library_may_call_it_with_anything(tmp_path, what):
    imports = "import contextlib\nimport itertools\nfrom passbench.launch import Launch\n"
    assert "host_read" in found(tmp_path, BY_LIBRARIES[what], imports + MORE)


@pytest.mark.parametrize("what", OF_CLASSES)
def test_others_may_call_it_with_anything(tmp_path, what):
    value, more = OF_CLASSES[what]
    (tmp_path / "lib.py").write_text("import math\n" + MORE.replace("TRIED", "KEPT"))
    assert "host_read" in found(tmp_path, value, MORE + more)
