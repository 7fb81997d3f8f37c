"""What a function does that nothing names counts for nothing, and any way to name it makes it count."""

import json

import pytest

from passbench.contract import NAMES_FILE
from passbench.policy.check import check_dir
from tests.passbench.policy.test_policy import HEAD, WRAPPER, check, in_wrapper

READS = "\ndef reads(t):\n    return open(t)\n"
KEPT = "\nclass Kept(tuple):\n    {}\n"
USES = {
    "a call": in_wrapper("z = reads(x)") + READS,
    "a value": in_wrapper("z = 1") + READS + "KEPT = [reads]\n",
    "a default": in_wrapper("z = 1") + READS + "\ndef other(f=reads):\n    return f\n",
    "an annotation": in_wrapper("z = 1") + READS + "\ndef other(t: reads(1)):\n    return t\n",
    "a decorator": in_wrapper("z = 1") + READS + "\n@reads\ndef other(t):\n    return t\n",
    "a class": in_wrapper("z = 1") + READS + "\nclass Kept:\n    f = reads\n",
    "a method": in_wrapper("z = 1") + READS + "\nclass Kept:\n    def get(self):\n        return reads\n",
    "a field of a class": in_wrapper("z = 1") + READS + KEPT.format("f = reads(1)"),
    "a default of a method": in_wrapper("z = 1") + READS + KEPT.format("def get(self, f=reads(1)):\n        pass"),
    "a decorator of a method": in_wrapper("z = 1") + READS + KEPT.format("@reads\n    def get(self):\n        pass"),
    "an annotation of a field": in_wrapper("z = 1") + READS + KEPT.format("f: reads(1) = 1"),
    "a base of a class": in_wrapper("z = 1") + READS + KEPT.format("pass").replace("tuple", "reads(1).Module"),
    "a base of another's name": in_wrapper("z = 1") + "\ntuple = torch.Tensor\n" + KEPT.format("pass"),
    "a text": in_wrapper("z = lib.f(x)\n    import rule\n    z = getattr(rule, 'reads')(x)") + READS,
    "another in use": in_wrapper("z = other(x)") + READS + "\ndef other(t):\n    return reads(t)\n",
    "a kernel": HEAD.replace("n, BLOCK: tl", "n, m=reads, BLOCK: tl") + WRAPPER.format(body="z = 1") + READS,
    "an import of a sibling": in_wrapper("z = 1").replace("import math", "import math\nfrom lib import reads"),
    "an import of a sibling under another name": (
        in_wrapper("z = f(x)").replace("import math", "import math\nfrom lib import reads as f")
    ),
    "an attribute of a sibling": in_wrapper("z = lib.reads(x)").replace("import math", "import math\nimport lib"),
    "a special name": in_wrapper("z = 1") + READS.replace("reads", "__getattr__"),
    "what the graph calls": HEAD.replace("return wrapper", "return reads") + READS,
}
"""`reads` is named there: what it does is refused, or how it is named."""


def found(tmp_path, text):
    return check(tmp_path, text, lib=READS)


def test_what_nobody_calls_is_left_out(tmp_path):
    more = READS + "\ndef main():\n    torch.manual_seed(0)\n    reads(torch.randn(3))\n"
    assert found(tmp_path, in_wrapper("z = 1") + more + '\nif __name__ == "__main__":\n    main()\n') == []


def test_functions_that_call_each_other_alone_are_left_out(tmp_path):
    more = "\ndef one(t):\n    return two(t.item())\n\ndef two(t):\n    return one(t)\n"
    assert found(tmp_path, in_wrapper("z = 1") + more) == []


@pytest.mark.parametrize("base", ["(tuple)", "(torch.nn.Module)"])
def test_classes_that_nobody_names_are_left_out(tmp_path, base):
    methods = (
        "SIZE = 3\n\n    def __new__(cls, t):\n        return t.item()\n\n    def f(self):\n        return open(self)"
    )
    assert found(tmp_path, in_wrapper("z = 1") + KEPT.format(methods).replace("(tuple)", base)) == []
    assert found(tmp_path, in_wrapper("z = Kept") + KEPT.format(methods).replace("(tuple)", base)) != []


@pytest.mark.parametrize("what", USES)
def test_what_is_named_counts(tmp_path, what):
    assert found(tmp_path, USES[what]) != []


def test_what_runs_at_its_definition_counts(tmp_path):
    assert found(tmp_path, in_wrapper("z = 1") + "\ndef one(t=torch.randn(3)):\n    return t\n") != []


def test_a_listed_module_has_functions_that_passbench_calls(tmp_path):
    found(tmp_path, in_wrapper("z = 1"))
    (tmp_path / NAMES_FILE).write_text(json.dumps(["rule", "lib"]))
    assert {f.rule for f in check_dir(tmp_path)} >= {"pattern", "replacement_args", "replacement_func"}


def test_what_profilers_alone_call_is_left_out(tmp_path):
    jit = "@triton.jit(launch_metadata=reads)\n"
    text = in_wrapper("z = 1").replace("@triton.jit\n", jit) + READS
    assert found(tmp_path, text) == []
    own = text + "\ndef jit(**options):\n    return options\n"
    for other in (text + "\nMETADATA = kernel.launch_metadata\n", own.replace("@triton.jit(", "@jit(")):
        assert "open" in "".join(f.message for f in found(tmp_path, other))
