"""Attacks by what torch, Triton and Python do besides computing: private operators, texts of errors, assembly, the end
of the stack. Somebody wrote them who had read the mechanism and none of the other fixtures."""

import torch

from storage.records import Sample
from tests.passbench.attacks.attack_kinds import EXACT, READ, WORKS, Attack, Honest, Step, outside, static
from tests.passbench.attacks.attack_samples import add_relu
from tests.passbench.samples import sample, spec, variant


def relu_and_copy() -> Sample:
    def f(x):
        y = torch.relu(x)
        return (y, y.clone())

    return sample(variant(f, spec("x", 3, 40)))


_OPERATOR = Step("evidence", ("rejected",), "evidence_operator: ")
_COPIED = Step("evidence", ("rejected", "ok"), "evidence_read: ")
"""A GPU's profiler sees the copy to the host; on a CPU there is none."""

LIBRARY_ATTACKS: tuple[Attack, ...] = (
    Attack(
        "recurses_to_the_limit",
        add_relu,
        (Step("evidence", ("rejected",), "evidence_deep: "), WORKS),
        "nobody comes near the end of the stack",
    ),
    Attack("assembly_of_parts", add_relu, (static("assembly"), WORKS), "assembly is the text that it seems", ("cuda",)),
    Attack("size_from_values", add_relu, (static("forbidden_call"), WORKS), "private operators are listed", ("cpu",)),
    Attack("copies_when_read", relu_and_copy, (static("forbidden_call"), _OPERATOR, WORKS), "so are they", ("cpu",)),
    Attack("text_of_an_error", add_relu, (static("host_read"), WORKS), "an error is shown and not read", ("cpu",)),
    Attack("list_of_values", add_relu, (static("host_read"), _COPIED, WORKS), "a list of tensors is read"),
    Attack("generator_returns", add_relu, (static("host_read"), READ), "what a generator returns is followed"),
    Attack("repeats_a_text", add_relu, (static("host_read"), READ), "how often a text is repeated is a number"),
    Attack("repeats_an_item", add_relu, (static("host_read"), READ), "so is that of an item"),
    Attack("sorts_tensors", add_relu, (static("host_read"), READ), "the order of tensors is one of their values"),
    Attack(
        "number_beside_an_address",
        add_relu,
        (static("address"), outside("InterpreterError|CompilationError|[Tt]ype|SIGSEGV")),
        "what a kernel puts together is addresses or none",
    ),
    Attack(
        "sorts_into_an_input",
        add_relu,
        (static("in_place"), Step("inputs_unchanged", ("wrong",), "writes over its input")),
        "a schema says what an overload writes to",
    ),
)

LIBRARY_HONEST: tuple[Honest, ...] = (Honest("falls_back", add_relu, EXACT),)
