"""The frozen table of signatures: what it says, and that it is what torch says."""

import pytest

from dedup.make_signatures import table
from dedup.signatures import CallSignature, normalised, signatures
from storage.graph.record import Op, Ref


@pytest.mark.parametrize("text", ["self", "self,dim,keepdim=,*,dtype=", "*,out", "a,*,b,c="])
def test_signatures_are_text_and_back(text: str) -> None:
    assert str(CallSignature.parse(text)) == text


def test_the_table_is_what_the_installed_torch_says_but_for_what_changed_since() -> None:
    installed = table()
    different = [name for name, each in installed.items() if set(signatures(name)) != set(each)]
    assert len(installed) > 4000
    assert len(different) < 0.03 * len(installed), different


@pytest.mark.parametrize(
    ("op", "args", "kwargs"),
    [
        # torch 2.11 has a second schema for named dimensions, under which dtype has no position
        (Op("function", "torch.softmax", (Ref(0),), {"dtype": 5, "dim": 1}), (Ref(0), 1, 5), {}),
        (Op("method", "flatten", (Ref(0),), {"end_dim": 2, "start_dim": 1}), (Ref(0), 1, 2), {}),
        # two Python functions behind one name: both branches have these parameters
        (
            Op("function", "torch.nn.functional.max_pool2d", (Ref(0), 3), {"return_indices": False, "stride": 2}),
            (Ref(0), 3, 2),
            {"return_indices": False},
        ),
        (Op("function", "torch.ops.aten.relu.default", (), {"self": Ref(0)}), (Ref(0),), {}),
        (Op("function", "operator.add", (Ref(0),), {"other": 1}), (Ref(0),), {"other": 1}),
        (Op("method", "no_such_method", (Ref(0),), {"b": 1, "a": 2}), (Ref(0),), {"a": 2, "b": 1}),
    ],
)
def test_one_way_to_write_a_call(op: Op, args: tuple, kwargs: dict) -> None:
    found = normalised(op)
    assert (found.args, found.kwargs) == (args, kwargs)
    assert list(found.kwargs) == list(kwargs)
