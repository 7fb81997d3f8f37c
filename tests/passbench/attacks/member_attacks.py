"""Attacks by names: a class of the pass has a member of some name, and the pass reads that name off an object of a
library."""

from tests.passbench.attacks.attack_kinds import WORKS, Attack, contract, static
from tests.passbench.attacks.attack_samples import add_relu

MEMBER_ATTACKS = (
    Attack(
        "array_of_a_size",
        add_relu,
        (static("forbidden_attribute"), WORKS),
        "a number of numpy leads to ctypes and all modules; its members are no names of fields",
    ),
    Attack(
        "interpreter_of_a_kernel",
        add_relu,
        (static("forbidden_attribute"), WORKS),
        "an interpreted kernel has what compiles text",
        ("cpu",),
    ),
    Attack(
        "module_of_python",
        add_relu,
        (static("module_name"), contract("compile_error", "has the name of a module")),
        "__main__ is what Python runs, whatever file of the pass has its name",
    ),
    Attack(
        "method_of_a_tensor",
        add_relu,
        (static("forbidden_attribute"), WORKS),
        "torch.Tensor as a value has the methods of tensors",
    ),
)
