"""Where an operator needs numbers, so that a tensor there is read."""

import ast

import pytest

from passbench.policy.operators import is_number, is_read_unseen, library_call, stored_name


@pytest.mark.parametrize(
    ("stored", "place"),
    [
        ("torch.zeros", 0), ("torch.full", 1), ("torch.add", "alpha"), ("torch.cat", 1), ("torch.fft.fft", 1),
        ("torch.linalg.norm", 1), ("torch.nn.functional.pad", 1), ("torch.narrow", 2), ("torch.linspace", 0),
        (".view", 1), (".view", 3), (".sum", "dim"), (".repeat", 2), ("torch.ops.aten.slice.Tensor", 3),
    ],
)  # fmt: skip
def test_places_of_numbers(stored, place):
    assert is_number(stored, place)


@pytest.mark.parametrize(
    ("stored", "place"),
    [
        ("torch.add", 1), ("torch.cat", 0), ("torch.einsum", 2), ("torch.nn.functional.linear", 2), (".fill_", 1),
        (".to", 1), (".masked_fill", 2), ("torch.ops.aten.index.Tensor", 1), ("torch.block_diag", 3),
        ("operator.add", 1), ("torch.add", "nothing_of_this_name"),
    ],
)  # fmt: skip
def test_places_of_tensors_and_unknown_ones(stored, place):
    assert not is_number(stored, place)


def test_a_split_by_a_tensor_is_read_unseen():
    assert is_read_unseen("torch.tensor_split", 1)
    assert is_read_unseen(".tensor_split", "tensor_indices_or_sections")
    assert is_read_unseen("torch.ops.aten.tensor_split.tensor_indices_or_sections", 1)
    assert not is_read_unseen("torch.tensor_split", 2)
    assert not is_read_unseen("torch.split", 1)


@pytest.mark.parametrize(
    ("call", "written"),
    [
        ("f(y, -1, values=x, indices=i)", ["x", "i"]), ("f(*given, values=x, indices=i)", ["x", "i", "*given"]),
    ],
)  # fmt: skip
def test_what_a_schema_says_is_written(call, written):
    node = ast.parse(call, mode="eval").body
    named = {keyword.arg: keyword.value for keyword in node.keywords}
    found = library_call("torch.ops.aten.sort.values", node.args, named).written
    assert [ast.unparse(part) for part in found] == written


@pytest.mark.parametrize(
    ("call", "written"),
    [
        ("max(x, 0, False, max=y, max_values=z)", ["y", "z"]), ("aminmax(x, min=y, max=z)", ["y", "z"]),
        ("native_layer_norm(x, [4], None, None, 1e-5, out0=y)", ["y"]), ("add(x, y, out=x)", ["x"]),
        ("add(x, y)", []), ("clamp(x, min=y)", []),
    ],
)  # fmt: skip
def test_what_another_overload_of_a_packet_writes_to(call, written):
    node = ast.parse(call, mode="eval").body
    named = {keyword.arg: keyword.value for keyword in node.keywords}
    stored = stored_name(f"torch.ops.aten.{node.func.id}")
    assert sorted(ast.unparse(part) for part in library_call(stored, node.args, named).written) == written


def test_a_packet_is_known_by_its_overload_of_tensors():
    assert stored_name("torch.ops.aten.add") == "torch.ops.aten.add.Tensor"
    assert stored_name("torch.ops.aten.relu") == "torch.ops.aten.relu.default"
    for name in ("add_", "frexp", "Int", "normal", "nothing_of_this_name"):
        assert stored_name(f"torch.ops.aten.{name}") is None


def test_statistics_of_a_batch_norm_are_written_where_it_trains():
    arguments = ast.parse("f(x, None, None, mean, var, True, 0.1, 1e-5)", mode="eval").body.args
    found = library_call("torch.ops.aten.native_batch_norm.default", arguments, {}).written
    assert [ast.unparse(part) for part in found] == ["mean", "var"]
    for stored in ("torch.batch_norm_update_stats", "torch.ops.aten.batch_norm_update_stats.default"):
        found = library_call(stored, ast.parse("f(x, mean, var, 0.1)", mode="eval").body.args, {}).written
        assert [ast.unparse(part) for part in found] == ["mean", "var"]


def test_repeating_by_numbers_alone_reads_them():
    one, two = (ast.parse(call, mode="eval").body.args for call in ("f(x)", "f(x, 2)"))
    assert library_call("torch.repeat_interleave", one, {}).reading
    assert not library_call("torch.repeat_interleave", two, {}).reading


def test_private_operators_are_those_that_compute():
    for name in ("_softmax", "_to_copy.default", "_foreach_add.List", "_adaptive_avg_pool2d_backward"):
        assert stored_name(f"torch.ops.aten.{name}") is not None
    for name in ("_lazy_clone", "_reshape_from_tensor", "_pack_padded_sequence.default", "_assert_async"):
        assert stored_name(f"torch.ops.aten.{name}") is None


def test_what_shares_memory_that_nobody_follows_is_no_operator():
    """The result of the first lies in its second argument, that of the other in a bytes object."""
    assert stored_name("torch.ops.aten.set.source_Tensor") is None
    assert stored_name("torch.asarray") is None
    assert stored_name("torch.as_tensor") is not None
