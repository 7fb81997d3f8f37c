"""Dicts that hold tensors which the pass has made, and nothing else: what is taken out of one may be written to."""

import pytest

from tests.passbench.policy.test_policy import IMPORTS, check, in_wrapper

OWN = """
KEPT = {}
ALSO = KEPT

class Buffers:
    shared = {}

    @classmethod
    def share(cls, key, t):
        cls.shared[key] = t
        return cls.shared[key]

    def __init__(self):
        self.kept = {}
        self.T = {}
        self.T[0] = torch.zeros(4)

    def keep(self, key, t):
        self.kept[key] = t

BUFFERS = Buffers()

def put(table, t):
    table[1] = t
    return 1

"""
OF_THE_MODULE = OWN.replace("ALSO = KEPT\n", "")
PUTTING = {
    "a subscript": "KEPT[1] = x",
    "a part of a target": "KEPT[1], z = x, n",
    "a loop": "for KEPT[1] in (x, y):\n    z = n",
    "setdefault": "KEPT.setdefault(1, x)",
    "update": "KEPT.update({1: x})",
    "a function": "put(KEPT, x)",
    "a lambda": "put_in = lambda t: KEPT.setdefault(1, t)\nput_in(x)",
    "a view": "KEPT[1] = x[0]",
}


@pytest.mark.parametrize("how", PUTTING)
def test_an_input_put_in_is_not_written_to(tmp_path, how):
    body = f"KEPT[0] = torch.zeros(4)\n{PUTTING[how]}\nKEPT[1].add_(1)"
    assert "in_place" in {f.rule for f in check(tmp_path, IMPORTS + in_wrapper(body) + OF_THE_MODULE)}


OTHERWISE = {
    "a default": "KEPT.get(1, x).add_(1)",
    "what is popped": "KEPT.pop(1, x).add_(1)",
    "a field": "BUFFERS.keep(1, x)\nBUFFERS.kept[1].add_(1)",
    "a field of a class": "Buffers.share(2, torch.zeros(4))\nBuffers.share(1, x).add_(1)",
    "a name that tensors have": "x.T[0].add_(1)",
}


@pytest.mark.parametrize("how", OTHERWISE)
def test_what_may_be_an_input_is_not_written_to(tmp_path, how):
    body = f"KEPT[0] = BUFFERS.kept[0] = torch.zeros(4)\n{OTHERWISE[how]}"
    assert "in_place" in {f.rule for f in check(tmp_path, IMPORTS + in_wrapper(body) + OF_THE_MODULE)}


def test_another_name_puts_in_an_input(tmp_path):
    body = "KEPT[0] = torch.zeros(4)\nALSO[1] = x\nKEPT[1].add_(1)"
    assert "in_place" in {f.rule for f in check(tmp_path, IMPORTS + in_wrapper(body) + OWN)}


def test_what_the_pass_has_made_is_written_to(tmp_path):
    body = "BUFFERS.keep(n, torch.zeros(4))\nBUFFERS.kept.get(n).add_(x)\nif n not in KEPT:\n    KEPT[n] = x + y\n"
    body += "KEPT.setdefault(1, torch.zeros(4)).zero_()\ntorch.add(x, y, out=KEPT[n])\nz = len(KEPT)\n"
    body += "Buffers.share(2, torch.zeros(4)).add_(x)"
    assert check(tmp_path, IMPORTS + in_wrapper(body) + OF_THE_MODULE) == []
