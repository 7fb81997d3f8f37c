"""The calls that torch makes in a variant under a pass, compared with those that it makes in eager."""

from collections import Counter

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from passbench.inputs.draw import make_inputs
from storage.graph.as_fx import to_module
from storage.records import Variant


class _Calls(TorchDispatchMode):
    """Counts the calls that torch makes, with the layouts of their tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.made: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        layouts = [(x.dtype, tuple(x.shape), x.stride()) for x in args if isinstance(x, torch.Tensor)]
        self.made[f"{function} of {layouts}"] += 1
        return function(*args, **(kwargs or {}))


def other_calls(candidate: torch.fx.GraphModule, variant: Variant) -> list[str]:
    """What differs from eager in the calls of a variant, in any order, and in the bits of its outputs."""
    drawn = make_inputs(variant.inputs, 7, 0, "cpu")
    eager, mine = _Calls(), _Calls()
    with torch.no_grad():
        with eager:
            expected = _tuple(to_module(variant.graph, "cpu")(*drawn))
        with mine:
            found = _tuple(candidate(*drawn))
    differences = [f"eager alone: {call}" for call in eager.made - mine.made]
    differences += [f"the pass alone: {call}" for call in mine.made - eager.made]
    for number, (want, have) in enumerate(zip(expected, found, strict=True)):
        if not torch.equal(want, have) or want.stride() != have.stride():
            differences.append(f"output {number} differs")
    return differences


def _tuple(value):
    return value if isinstance(value, tuple | list) else (value,)
