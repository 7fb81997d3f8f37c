"""Functions with a fixed name that a listed module imports: they are checked as if they stood in it."""

import json

import pytest

from passbench.contract import NAMES_FILE
from passbench.policy.check import check_dir
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
