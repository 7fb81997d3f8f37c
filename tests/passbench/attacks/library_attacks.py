"""Attacks by what torch, Triton and Python do besides computing: private operators, texts of errors, assembly, the end
of the stack. Somebody wrote them who had read the mechanism and none of the other fixtures."""

from tests.passbench.attacks.attack_kinds import WORKS, Attack, Step
from tests.passbench.attacks.attack_samples import add_relu

LIBRARY_ATTACKS: tuple[Attack, ...] = (
    Attack(
        "recurses_to_the_limit",
        add_relu,
        (Step("evidence", ("rejected",), "evidence_deep: "), WORKS),
        "nobody comes near the end of the stack",
    ),
)
