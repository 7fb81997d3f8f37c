"""weight_meta.py, input_tensor_constraints.py and graph_net.json: literals become records, anything else an error."""

import math
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from storage.layout.errors import LayoutError
from storage.layout.export import tensor_class
from storage.layout.extra_files import Constraints, read_constraints, read_metadata
from storage.layout.forward import Argument
from storage.layout.tensor_meta import inputs_of, integers_of, moments, read_meta
from storage.records import Input, contiguous_stride

GRAPHNET = '''
class Program_weight_tensor_meta_L_x_:
    name = "L_x_"
    shape = [2, 3]
    dtype = "torch.bfloat16"
    device = "cuda:0"
    mean = 0.25
    std = 1.5
    data = None


class Program_weight_tensor_meta_L_ids_:
    name = "L_ids_"
    shape = [4]
    dtype = "torch.int64"
    device = "cpu"
    mean = None
    std = None
    data = [3, 0, 7, 1]


class Program_weight_tensor_meta_L_self_buffers_mask_:
    """A mask."""
    name = "L_self_buffers_mask_"
    shape = [2]
    dtype = torch.float32
    device = "cuda:0"
    mean = -float("inf")
    std = float("nan")
    data = [float("-inf"), 0.0]


class Program_weight_tensor_meta_L_self_parameters_w_:
    name = "L_self_parameters_w_"
    shape = []
    dtype = "torch.float32"
    mean = 0.5
    std = 0.1
    min_val = 0.01
    max_val = 0.99


class Program_weight_tensor_meta_s0:
    name = "s0"
    shape = []
    dtype = "torch.int64"
    data = [4]
'''


def _arguments(*names: str) -> list[Argument]:
    return [Argument(name, "integer" if name == "s0" else "tensor", 1) for name in names]


def test_classes_in_graphnets_form() -> None:
    metas = read_meta(GRAPHNET, "weight_meta.py")
    arguments = _arguments("L_ids_", "L_x_", "s0", "L_self_parameters_w_", "L_self_buffers_mask_")
    assert inputs_of(arguments, metas, "weight_meta.py") == (
        Input("L_ids_", "input", "int64", (4,), (1,), low=0, high=7),
        Input("L_x_", "input", "bfloat16", (2, 3), (3, 1), mean=0.25, std=1.5),
        Input("L_self_parameters_w_", "parameter", "float32", (), (), low=0.01, high=0.99),
        Input("L_self_buffers_mask_", "buffer", "float32", (2,), (1,), low=0, high=0),
    )
    assert integers_of(arguments, metas, "weight_meta.py", {}) == {"s0": 4}
    assert integers_of(arguments, metas, "weight_meta.py", {"s0": 6}) == {"s0": 6}


numbers = st.floats(-1e30, 1e30)
expressions = st.sampled_from(["3", "batch", "batch*(height//4)", "max(batch, 2)"])


@st.composite
def records(draw: st.DrawFn) -> Input:
    """Inputs of every dtype with any of the ranges that a record can have."""
    shape = tuple(draw(st.lists(st.integers(0, 9), max_size=3)))
    dtype = draw(st.sampled_from(["float32", "bfloat16", "int64", "bool", "complex64", "uint8"]))
    ranges: dict[str, float | None] = {}
    if draw(st.booleans()):
        low = draw(numbers if "float" in dtype else st.integers(-5, 5).map(float))
        ranges = {"low": low, "high": draw(st.one_of(st.none(), st.just(low + 3.0)))}
    if draw(st.booleans()):
        ranges |= {"mean": draw(numbers), "std": draw(st.one_of(st.none(), st.floats(0, 1e9)))}
    symbolic = [tuple(draw(expressions) for _ in shape) if draw(st.booleans()) else None for _ in range(2)]
    strides = contiguous_stride(shape), contiguous_stride(shape[::-1])[::-1], tuple(0 for _ in shape)
    stride = draw(st.sampled_from(strides))
    role = draw(st.sampled_from(["input", "parameter", "buffer"]))
    return Input("in_0", role, dtype, shape, stride, symbolic[0], symbolic_stride=symbolic[1], **ranges)


@example(Input("in_0", "input", "float32", (), (), low=0.0, mean=0.0, std=0.0))
@given(records())
def test_an_exported_input_is_imported_as_it_was(each: Input) -> None:
    metas = read_meta(tensor_class(each, 0), "weight_meta.py")
    said_twice = each.low is not None and (each.mean, each.std) == moments(each.low, each.high)
    expected = replace(each, mean=None, std=None) if said_twice else each  # the layout has them for every range
    assert inputs_of(_arguments("in_0"), metas, "weight_meta.py") == (expected,)


@given(records())
def test_readers_of_mean_and_std_find_them_for_floats(each: Input) -> None:
    attributes = read_meta(tensor_class(each, 0), "weight_meta.py")["in_0"].attributes
    assert attributes["shape"] == list(each.shape) and attributes["dtype"] == f"torch.{each.dtype}"
    assert attributes["data"] is None
    if "float" in each.dtype and each.mean is None:
        assert math.isfinite(attributes["mean"]) and attributes["std"] >= 0


def _class(**attributes: object) -> str:
    plain = {"name": "x", "shape": [2], "dtype": "torch.float32"} | attributes
    return "class X:\n" + "".join(f"    {key} = {value!r}\n" for key, value in plain.items())


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("class X:\n    name = open('f')\n", "weight_meta.py:2: a call of 'open' is no literal"),
        ("class X:\n    data = [i for i in x]\n", "weight_meta.py:2: a comprehension is no literal"),
        ("class X(object):\n    pass\n", "weight_meta.py:1: a class stands in place of a plain class a tensor"),
        ("x = 1\n", "weight_meta.py:1: an assignment stands in place of a plain class a tensor"),
        ("import os\n", "weight_meta.py:1: an import stands in place"),
        (
            "class X:\n    def f(self): pass\n",
            "weight_meta.py:2: a function definition stands in place of an attribute",
        ),
        (_class(name="y"), "no class describes the argument 'x'"),
        (_class() + _class(), "'x' is described twice"),
        (_class(shape=None), "'x' has no shape of whole numbers"),
        (_class(shape=[-1]), "'x' has no shape of whole numbers"),
        (_class(shape=[2.0]), "'x' has no shape of whole numbers"),
        (_class(shape=[1 << 51]), "'x' has a shape beyond"),
        (_class(shape=[1] * 33), "'x' has a shape beyond"),
        (_class(stride=[1, 1]), "'x' has a stride that does not fit"),
        (_class(dtype="torch.load"), "'x' has the dtype 'torch.load', which torch does not have"),
        (_class(dtype=None), "'x' has the dtype 'None'"),
        (_class(mean="1"), "'x' has a mean, deviation or bound that is not a number"),
        (_class(mean=0.0, std=-1.0), "'x' has a negative deviation"),
        (_class(role="weight"), "'x' has a role that is none of"),
        (_class(symbolic_shape=["__import__('os')"]), "'x' has a bad symbolic_shape"),
        (_class(symbolic_shape=["a", "b"]), "not one expression a dimension"),
    ],
)
def test_bad_metadata_says_where_and_what(text: str, what: str) -> None:
    with pytest.raises(LayoutError) as raised:
        inputs_of(_arguments("x"), read_meta(text, "weight_meta.py"), "weight_meta.py")
    assert what in str(raised.value) and str(raised.value).startswith("weight_meta.py")


def test_an_integer_needs_a_value() -> None:
    with pytest.raises(LayoutError, match="is a Python integer without a value"):
        integers_of(_arguments("s0"), read_meta(_class(name="s0"), "w"), "w", {})


CONSTRAINTS = """
from sympy import Symbol, Expr, Rel, Eq

S0 = Symbol("S0")
S1 = Symbol("S1")

dynamic_dim_constraint_symbols = [S0, S1]
dynamic_dim_constraint_symbol2example_value = {S0: 2, S1: 12}
dynamic_dim_constraint_relations = [Eq(S1, 6*S0)]
dynamic_dim_constraint_input_shapes = [([S0, 3, S1//4], "x"), ([S0], "y")]
"""


def test_constraints_in_graphnets_form() -> None:
    found = read_constraints(CONSTRAINTS, "c")
    assert found == Constraints({"S0": 2, "S1": 12}, {"x": ("S0", "3", "S1 // 4"), "y": ("S0",)})
    assert found.of("x", (2, 3, 3)) == ("S0", "3", "S1 // 4")
    assert found.of("x", (2, 3, 4)) is found.of("x", (2, 3)) is found.of("z", ()) is None
    assert read_constraints("", "c") == Constraints()


@pytest.mark.parametrize(
    "text",
    [
        "import os",
        "from os import system",
        "S0 = Symbol('S1')",
        "S0 = open('f')",
        "x.y = 1",
        "dynamic_dim_constraint_symbol2example_value = open('f')",
        "dynamic_dim_constraint_symbol2example_value = {S0: 1}",
        "S0 = Symbol('S0')\ndynamic_dim_constraint_symbol2example_value = {S0: -1}",
        "dynamic_dim_constraint_input_shapes = [([S9], 'x')]",
        "dynamic_dim_constraint_input_shapes = [([open('f')], 'x')]",
        "dynamic_dim_constraint_input_shapes = [[1], 'x']",
    ],
)
def test_bad_constraints_are_refused(text: str) -> None:
    with pytest.raises(LayoutError, match=r"^c:\d"):
        read_constraints(text, "c")


def test_graph_net_json() -> None:
    assert read_metadata('{"framework": "torch", "dynamic": false}', "g") == {"framework": "torch", "dynamic": False}
    for text, cause in (
        ("{", "syntax"),
        ("[" * 100_000, "syntax"),
        ("[]", "metadata"),
        ('{"framework": 1}', "framework"),
    ):
        with pytest.raises(LayoutError) as raised:
            read_metadata(text, "g")
        assert raised.value.cause == cause
