"""What a listed module imports from another one of its pass is checked as if it stood in it: functions with a fixed
name, what the other module has itself imported, and all that it has."""

import json
import re

import pytest

from passbench.checking.evidence import jit_functions
from passbench.contract import NAMES_FILE, PassFiles
from passbench.policy.check import check_dir
from tests.passbench.policy.test_policy import check, in_wrapper
from tests.passbench.policy.test_replacements import HEAD

LIBRARY = HEAD.replace("def pattern(x, y):\n    return torch.relu(torch.add(x, y))\n", "")
LIBRARY = LIBRARY.replace("def replacement_args(x, y):\n    return (x, y, 64)\n", "")
GIVES = "\ndef replacement_func():\n    return {}\n"
PICKS = "\ndef replacement_args(x, y):\n    return (x, y, 64)\n"
READS = "\ndef reads(x, y, block):\n    return y * float(x)\n"
RULE = "import torch\n{}\n\ndef pattern(x, y):\n    return torch.relu(torch.add(x, y))\n"
TAKEN = "from lib import replacement_func"


def rules(tmp_path, listed, **files):
    (tmp_path / NAMES_FILE).write_text(json.dumps(listed))
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    return {f.rule for f in check_dir(tmp_path)}


def test_modules_have_one_replacement(tmp_path):
    both = RULE.format("from pass_dir.lib import launch, replacement_args, replacement_func")
    first = RULE.format("from .lib import replacement_func") + PICKS
    last = RULE.format("from rule import replacement_func") + PICKS
    lib = LIBRARY + PICKS + GIVES.format("launch")
    assert rules(tmp_path, ["rule", "also"], rule=both, also=first, lib=lib) == set()
    direct = HEAD + GIVES.format("launch")
    assert rules(tmp_path, ["rule", "also"], rule=direct, also=last, lib="") == set()


REFUSED = {
    "it reads": (TAKEN, LIBRARY + READS + GIVES.format("reads"), "host_read"),
    "what it makes reads": (
        TAKEN, LIBRARY + READS + GIVES.format("functools.partial(reads, block=1)"), "host_read"
    ),
    "a variable of another's name": (
        TAKEN, LIBRARY + READS + GIVES.format("launch").replace("return", "launch = reads\n    return"), "host_read"
    ),
    "an operator": (TAKEN, LIBRARY + GIVES.format("torch.relu"), "replacement_func"),
    "bound once more": (
        f"{TAKEN}\nfrom lib import launch as replacement_func", LIBRARY + GIVES.format("launch"), "rebinding"
    ),
    "bound once more there": (
        TAKEN, LIBRARY + READS + GIVES.format("launch") + "replacement_func = lambda: reads\n", "replacement_func"
    ),
    "arguments that are computed": (
        "from lib import replacement_args, replacement_func", LIBRARY + PICKS.replace("(x,", "(x + y,")
        + GIVES.format("launch"), "replacement_args"
    ),
    "arguments that another module has": (
        "from lib import replacement_args, replacement_func", LIBRARY + PICKS.replace("64", "SIZE")
        + GIVES.format("launch"), "replacement_args"
    ),
}  # fmt: skip
"""What a rule imports, the module that it imports from, and a rule of the findings."""


@pytest.mark.parametrize("how", REFUSED)
def test_what_is_taken_is_checked(tmp_path, how):
    taken, lib, rule = REFUSED[how]
    picks = "" if "replacement_args" in taken else PICKS
    assert rule in rules(tmp_path, ["rule"], rule=RULE.format(taken) + picks, lib=lib)


def test_what_a_listed_module_returns_is_its_own_function(tmp_path):
    also = RULE.format("from rule import replacement_func") + PICKS
    rule = HEAD + READS + GIVES.format("launch").replace("return", "launch = reads\n    return")
    assert "replacement_func" in rules(tmp_path, ["rule", "also"], rule=rule, also=also)


def starred(tmp_path, lib, calls, above=""):
    text = f"{above}from lib import *\n" + in_wrapper(f"z = {calls}")
    return {(f.file, f.rule) for f in check(tmp_path, text, lib=lib)}


KERNELS = LIBRARY.replace("import torch\n", "import torch\nimport math as reckon\n", 1)


def test_what_another_module_imports(tmp_path):
    lib = KERNELS + "\n__all__ = ['_own', 'torch', 'triton', 'tl', 'reckon']\ndef _own(a):\n    return a\n"
    text = in_wrapper("z = _own(n) + reckon.floor(1)")
    text = re.sub(r"import \w+( as tl)?\n|import triton.language as tl\n", "", text)
    assert check(tmp_path, "from lib import *\n" + text, lib=lib) == []
    named = "from pass_dir.lib import tl, torch, reckon, triton, _own\n"
    assert check(tmp_path, named + text, lib=lib) == []
    rule = PassFiles(
        ("rule",), {"rule.py": named + text, "lib.py": "import torch, triton\nimport triton.language as tl"}, ()
    )
    assert jit_functions(rule) == {"kernel"}


STARRED = {
    "it reads": ("def size(t):\n    return t.item()\n", "size(x)", ("lib.py", "host_read")),
    "a built-in by another's name": ("def len(t):\n    return t\n", "len(x)", ("rule.py", "rebinding")),
    "a built-in that a function binds": (
        "def f():\n    global len\n    len = 3\n", "len(x)", ("rule.py", "rebinding")
    ),
    "a built-in in a default": ("def f(a=(len := 3)):\n    return a\n", "len(x)", ("rule.py", "rebinding")),
    "a listed built-in": ("__all__ = ['len']\ndef len(t):\n    return t\n", "len(x)", ("rule.py", "rebinding")),
    "a list that grows": (
        "__all__ = []\n__all__ += ['len']\ndef len(t):\n    return t\n", "len(x)", ("rule.py", "import")
    ),
    "another module by its name": ("import torch as math\n", "math.floor(1)", ("rule.py", "rebinding")),
    "a function of the rule": ("def kernel(t):\n    return t\n", "1", ("rule.py", "import")),
    "a star within": ("from os import *\n", "system('x')", ("rule.py", "import")),
    "a module that is refused": ("import os as reckon\n", "reckon.system('x')", ("rule.py", "forbidden_call")),
    "bound once more there": (
        "import math as reckon\nclass C:\n    floor = 1\nreckon = C()\n", "reckon.floor", ("lib.py", "rebinding")
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", STARRED)
def test_a_star_hides_nothing(tmp_path, what):
    lib, calls, finding = STARRED[what]
    assert finding in starred(tmp_path, lib, calls)


def test_a_star_of_typing_binds_names_that_others_read(tmp_path):
    hints = "def get_type_hints(a):\n    return a\nfrom typing import *\n"  # the last evaluates texts in annotations
    asked = 'import lib\ndef g(a: "exit()"):\n    return a\nlib.get_type_hints(g)\n'
    found = check(tmp_path, in_wrapper("pass") + asked, lib=hints)
    assert {(f.file, f.rule) for f in found} == {("lib.py", "rebinding")}
