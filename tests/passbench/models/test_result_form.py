"""How a result is made of a graph's outputs, told to another process as plain data."""

import json
from collections import OrderedDict
from dataclasses import dataclass, fields
from typing import Any

import pytest
import torch
from torch.utils._pytree import register_pytree_node

from passbench.models.result_form import NoResultForm, ResultForm, result_form


@dataclass
class Inner(OrderedDict):
    """A dictionary of its fields, as the outputs of transformers are."""

    first: Any = None
    second: Any = None

    def __post_init__(self) -> None:
        for field in fields(self):
            if (value := getattr(self, field.name)) is not None:
                self[field.name] = value


@dataclass
class Outer(Inner):
    """One that has another one in it, as that of CLIP."""


@dataclass
class Unregistered(Inner):
    """One that pytree does not look into."""


for kind in (Inner, Outer):
    register_pytree_node(
        kind,
        lambda x: (list(x.values()), list(x)),
        lambda values, keys, kind=kind: kind(**dict(zip(keys, values, strict=True))),
        serialized_type_name=f"{kind.__module__}.{kind.__qualname__}",
    )

A, B = torch.ones(2), torch.zeros(3)


def again(form: ResultForm) -> ResultForm:
    return ResultForm.from_json(json.loads(json.dumps(form.to_json())))


@pytest.mark.parametrize(
    "result",
    [A, [A, B], (A, 3, None), {"a": A, "b": [B]}, Inner(A, B), Inner(second=B), Outer(A, Inner(B)), [Outer(Inner(A))]],
    ids=["tensor", "list", "constants", "dict", "flat", "empty", "nested", "nested in a list"],
)
def test_another_process_makes_the_same_result(result):
    made = again(result_form(result, [A, B], [])).builder()([A, B], [])
    assert type(made) is type(result) and repr(made) == repr(result)


def test_what_another_process_cannot_make_is_refused():
    with pytest.raises(NoResultForm, match="may hold tensors"):
        result_form(Outer(A, Unregistered(B)), [A, B], [])
    data = result_form(Outer(A, Inner(B)), [A, B], []).to_json()
    for name in (["os", "system"], [__name__, "again"], ["builtins", "dict"], ["ctypes", "cdll./library"]):
        data["spec"][1][0] = name
        with pytest.raises(NoResultForm, match="no class of a model's result"):
            ResultForm.from_json(data)
    data["spec"][1][0] = [__name__, "Unregistered"]
    with pytest.raises(NoResultForm, match="another number of leaves"):
        ResultForm.from_json(data)
