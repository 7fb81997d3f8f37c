"""Random straight-line programs, some of their lines as the pattern: rewriting never changes what they compute."""

import operator
import re

import torch
import torch.nn.functional as F
from hypothesis import example, given, settings
from hypothesis import strategies as st

from passbench.contract import PassRule
from passbench.matching.rewrite import apply_pass
from tests.passbench.samples import fx_graph

PURE = [
    "torch.sin({0})", "{0} + {1}", "{0} - {1}", "torch.add({0}, {1}, alpha=2)", "{0} * 0.5", "torch.relu({0})",
    "F.softmax({0}, dim=-1)", "torch.sort({0}, -1)[0]", "torch.cat([{0}, {1}])[:2]", "1 - {0}",
]  # fmt: skip
VIEWS = ["{0}.view(2, 3)", "{0}[:]", "{0}.chunk(1)[0]", "{0}.t().t()", "{0}.contiguous()"]
IN_PLACE = [
    "operator.iadd({0}, {1})", "{0}.mul_(0.5)", "F.relu({0}, inplace=True)", "{0}.add_({1}, alpha=2)",
    "operator.setitem({0}, 0, 0.25)",
]  # fmt: skip
RANDOM = ["F.dropout({0}, 0.5, True)", "torch.rand_like({0})"]
INPUTS = ("x", "y")


def function(lines, parameters, returned):
    source = f"def f({', '.join(parameters)}):\n" + "".join(f"    {line}\n" for line in lines)
    scope = {"__name__": __name__, "torch": torch, "F": F, "operator": operator}
    exec(source + f"    return {returned}\n", scope)
    return scope["f"]


def names(text):
    return re.findall(r"\b(?:v\d+|x|y)\b", text)


@st.composite
def programs(draw, impure=True):
    """Lines `v3 = …`, with every second call of a line on one of its own: a line is an op or two."""
    ops = PURE + (VIEWS + VIEWS + IN_PLACE + IN_PLACE + RANDOM if impure else [])
    values, lines = list(INPUTS), []
    for number in range(draw(st.integers(2, 9))):
        recent = st.sampled_from(values[-3:]) | st.sampled_from(values)
        expression = draw(st.sampled_from(ops)).format(draw(recent), draw(recent))
        if expression.startswith("operator.setitem"):
            lines.append(expression)
        else:
            lines.append(f"v{number} = {expression}")
            values.append(f"v{number}")
    returned = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
    chosen = draw(st.sets(st.integers(0, len(lines) - 1), min_size=1, max_size=5))
    if draw(st.booleans()):
        chosen = set(range(min(chosen), min(chosen) + len(chosen))) & set(range(len(lines)))
    return lines, returned, sorted(chosen)


def parts(lines, returned, chosen):
    """Parameters and outputs of the chosen lines; no outputs if nothing reads them."""
    inside = [lines[n] for n in chosen]
    defined = {line.split(" = ")[0] for line in inside if " = " in line}
    read = [name for line in inside for name in names(line.split(" = ")[-1])]
    parameters = list(dict.fromkeys(name for name in read if name not in defined))
    outside = [name for n, line in enumerate(lines) if n not in chosen for name in names(line.split(" = ")[-1])]
    outputs = sorted(defined & {*outside, *returned})
    return inside, parameters, outputs


def pass_of(inside, parameters, outputs, wrap=lambda f: f):
    pattern = function(inside, parameters, ", ".join(outputs))
    return PassRule("rule", pattern, lambda *a: a, wrap(pattern), tuple(parameters))


def apart(pattern):
    """Computes what `pattern` does, writes nothing and shares no memory."""

    def replacement(*inputs):
        results = pattern(*(v.clone() if isinstance(v, torch.Tensor) else v for v in inputs))
        return tuple(v.clone() for v in results) if isinstance(results, tuple) else results.clone()

    return replacement


def run(graph):
    inputs = [torch.linspace(-2, 3, 6).reshape(2, 3), torch.linspace(1, -1, 6).reshape(2, 3)]
    torch.default_generator.manual_seed(0)  # `torch.manual_seed` formats the whole stack for devices not yet begun
    return torch.fx.GraphModule(torch.nn.Module(), graph).forward(*inputs), inputs


def equal(left, right):
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


SETTINGS = settings(max_examples=100)


@SETTINGS
@given(programs())
@example((["v0 = x.view(2, 3)", "v1 = torch.sin(v0)", "v2 = v0.mul_(0.5)"], ["v1", "x"], [0]))
def test_outputs_and_inputs_stay_the_same(program):
    lines, returned, chosen = program
    whole = function(lines, INPUTS, f"({', '.join(returned)},)")
    inside, parameters, outputs = parts(lines, returned, chosen)
    if not outputs or not parameters:
        return
    expected, written = run(fx_graph(whole))
    for wrap in (lambda f: f, apart):
        graph = fx_graph(whole)
        applied = apply_pass(graph, [pass_of(inside, parameters, outputs, wrap)])
        actual, now = run(graph)
        assert equal(actual, expected), applied
        if wrap is not apart or not re.search(r"_\(|operator|inplace", " ".join(inside)):  # else it need not write
            assert equal(now, written)
        if not applied.total:
            assert applied.diagnosis().count("\n") == 2


@SETTINGS
@given(programs(impure=False))
def test_a_convex_part_of_a_pure_program_matches(program):
    lines, returned, chosen = program
    inside, parameters, outputs = parts(lines, returned, chosen)
    if not outputs or not parameters:
        return
    depends = {}  # line → whether it is computed from the chosen ones
    for number, line in enumerate(lines):
        name, _, expression = line.partition(" = ")
        sources = names(expression)
        after = any(depends.get(v, (False, False))[1] for v in sources)
        if number in chosen and after:
            return  # not convex
        depends[name] = (
            number in chosen,
            number not in chosen and (after or any(depends.get(v, (0, 0))[0] for v in sources)),
        )
    graph = fx_graph(function(lines, INPUTS, f"({', '.join(returned)},)"))
    applied = apply_pass(graph, [pass_of(inside, parameters, outputs)])
    assert applied.total >= 1, applied.diagnosis()
    assert len(applied.inserted) == applied.total
