"""A pattern may loop over constants and call functions of the pass: all of it is of operations."""

import pytest

from tests.passbench.policy.test_policy import HEAD, WRAPPER, check, in_wrapper

PATTERN = "return torch.relu(x + y)"
HALF = "\ndef half(t):\n    return torch.cat((-t[..., 1:], t[..., :1]), dim=-1)\n"
ACCEPTED = {
    "a helper": ("return torch.relu(half(x) + half(y))", HALF),
    "a helper of a helper": ("return torch.relu(h(x) + y)", HALF + "\ndef h(t, d=1):\n    return half(t) * d\n"),
    "what the host may not call": (
        "return h(x + y)",
        "\ndef h(t):\n    t = torch.nn.functional.dropout(t, 0.1)\n    t += 1\n    return t\n",
    ),
    "a sibling's": ("return lib.h(x + y)", "\nimport lib\n"),
    "an imported one": ("return h(x + y)", "\nfrom lib import h\n"),
    "a loop": ("for d in (1, 0):\n        x = x.sum(d) + y\n    return x", ""),
    "a loop that collects": (
        "a = []\n    for n, t in enumerate((x, y)):\n        a.append(t * n)\n    return torch.cat(a)",
        "",
    ),
    "a branch": ("if WIDE:\n        x = x + y\n    return torch.relu(x * 2 if WIDE and 1 else y)", "\nWIDE = True\n"),
    "a branch on what is left out": ("return x + y if y is not None else x", ""),
}
KEEPS = "\nKEPT = []\ndef {}:\n    KEPT.append(a)\n    return a\n"
REFUSED = {
    "a helper that reads a file": ("forbidden_name", "return h(x + y)", "\ndef h(t):\n    return open(t)\n"),
    "a helper that keeps values": ("forbidden_name", "return h(x) + y", KEEPS.format("h(a)")),
    "a helper that keeps them in a default": (
        "pattern",
        "return h(x) + y",
        "\ndef h(a, kept=[]):\n    kept.append(a)\n    return a\n",
    ),
    "a helper that sets a global": (
        "pattern",
        "return h(x) + y",
        "\ndef h(a):\n    global K\n    K = a\n    return a\n",
    ),
    "a helper that looks at its tracer": ("pattern", "return h(x) + y", "\ndef h(a):\n    return a.tracer\n"),
    "a helper's helper": (
        "private_name",
        "return h(x) + y",
        "\ndef h(a):\n    return g(a)\ndef g(a):\n    return a.__class__\n",
    ),
    "a helper under a decorator": ("pattern", "return h(x) + y", "\n@torch.no_grad()\ndef h(a):\n    return a\n"),
    "a helper of a sibling's": ("forbidden_name", "return lib.g(x + y)", "\nimport lib\n"),
    "a generator": ("pattern", "return torch.cat([*h(x)]) + y", "\ndef h(a):\n    yield a\n"),
    "what PassBench calls": ("forbidden_name", "return replacement_func()(x, y)", ""),
    "the wrapper": ("pattern", "return wrapper(x, y, 1, 2)", ""),
    "a class": ("forbidden_name", "return K(x) + y", "\nclass K:\n    def __init__(self, a):\n        self.a = a\n"),
    "a name of a comprehension": ("pattern", "[exec for exec in ()]\n    exec('1')\n    return x + y", ""),
    "a loop without end": ("pattern", "while 1:\n        x = x + y\n    return x", ""),
    "a branch on a value": ("pattern", "return x if x.sum() > 0 else y", ""),
    "a file in a branch": ("forbidden_name", "if 0:\n        open('f')\n    return x + y", ""),
    "a file in a loop's else": (
        "forbidden_name",
        "for d in ():\n        pass\n    else:\n        open('f')\n    return x + y",
        "",
    ),
}
LIB = "import torch\n\ndef h(t):\n    return torch.relu(t)\n\ndef g(t):\n    return open(t)\n"


def found(tmp_path, pattern, more):
    text = HEAD.replace(PATTERN, pattern) + WRAPPER.format(body="pass") + more
    return [f.rule for f in check(tmp_path, text, lib=LIB)]


@pytest.mark.parametrize("what", ACCEPTED)
def test_what_is_traced_may_be_written_in_parts(tmp_path, what):
    assert found(tmp_path, *ACCEPTED[what]) == []


@pytest.mark.parametrize("what", REFUSED)
def test_no_part_of_it_does_more(tmp_path, what):
    rule, *text = REFUSED[what]
    assert rule in found(tmp_path, *text)


def test_a_built_in_of_the_module_is_a_helper(tmp_path):
    own = KEEPS.format("max(a, b)") + HEAD.replace(PATTERN, "return torch.relu(max(x, y))")
    assert "forbidden_name" in [f.rule for f in check(tmp_path, own + WRAPPER.format(body="pass"))]


def test_a_helper_that_the_host_calls_is_host_code(tmp_path):
    drawn = "\ndef h(t):\n    return torch.rand_like(t)\n"
    assert found(tmp_path, "return h(x) + y", drawn) == []
    text = HEAD.replace(PATTERN, "return h(x) + y") + WRAPPER.format(body="z = h(x)") + drawn
    assert [f.rule for f in check(tmp_path, text)] == ["random"]


COUNTED = "torch.nn.functional.one_hot(x, n)"
NEVER_COUNTED = [
    f"return x + n\n    z = {COUNTED}",
    f"if 0:\n        z = {COUNTED}\n    return x + n",
    f"return x + n if 1 else {COUNTED}",
]


@pytest.mark.parametrize("pattern", [f"z = {COUNTED}\n    return z + y", *NEVER_COUNTED])
def test_classes_are_counted_where_the_graph_does_it(tmp_path, pattern):
    text = (
        in_wrapper("z = torch.nn.functional.one_hot(x, k)")
        .replace("(x, y)", "(x, y, n)")
        .replace('route", 2', 'route", n')
    )
    rules = [f.rule for f in check(tmp_path, text.replace("return torch.relu(x + y)", pattern))]
    assert rules == (["host_read"] if pattern in NEVER_COUNTED else [])
