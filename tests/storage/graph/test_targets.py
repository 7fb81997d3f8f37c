import operator

import pytest
import torch

from storage.graph import targets
from storage.graph.as_fx import to_module
from storage.graph.record import Graph, Op, Ref
from storage.graph.targets import TargetError

FORBIDDEN = """
    torch.load torch.save torch.from_file torch.frombuffer torch.from_numpy torch.compile torch.set_num_threads
    torch.ops.aten.from_file.default torch.ops.aten.save.default torch.ops.aten.set_.source_Storage
    torch.ops.aten.set_.source_Tensor torch.ops.aten.set_data.default torch.ops.aten.resize_.default
    torch.ops.aten.manual_seed.default torch.ops.aten.append.t torch.ops.aten.format.default
    torch.ops.aten._reshape_alias.default torch.ops.aten._sparse_csr_tensor_unsafe.default
    torch.ops.aten._nested_view_from_buffer.default torch.ops.aten.segment_reduce.default
    torch.ops.aten.__init__.default torch.ops.aten.add.__class__ torch.ops.aten.add torch.ops.prim.Print.default
    torch.ops.load_library.x.default torch.ops.quantized.linear.default torch.ops.inductor._alloc_from_pool.default
    torch.sparse_coo_tensor torch.sparse_csr_tensor torch.segment_reduce torch.ctc_loss torch.nn.functional.ctc_loss
    torch.fbgemm_linear_fp16_weight torch.quantized_lstm_cell torch.mkldnn_rnn_layer torch.cudnn_convolution
    torch.resize_as_ torch.empty_quantized torch.ops.aten.cudnn_convolution.default
    builtins.eval builtins.exec builtins.open builtins.__import__ builtins.setattr builtins.type builtins.vars
    operator.attrgetter operator.methodcaller operator.itemgetter operator.call math.__loader__ math.__spec__
    os.system torch.hub.load torch.utils.data.DataLoader torch.nn.functional.torch.load torch.nn.functional.Tensor
    torch.nn.functional.boolean_dispatch torch.nn.functional.handle_torch_function
    torch.linalg.torch.load torch._C._nn.__class__ torch.amp.autocast_mode.functools.partial
""".split()


@pytest.mark.parametrize("name", FORBIDDEN)
def test_forbidden_functions(name: str) -> None:
    with pytest.raises(TargetError):
        targets.resolve(name)


FORBIDDEN_METHODS = """
    data_ptr const_data_ptr numpy tolist storage untyped_storage set_ resize_ resize_as_ map_ map2_ apply_ register_hook
    backward share_memory_ pin_memory record_stream __reduce_ex__ __class__ __getattribute__ __setattr__ __array__
    __dlpack__ _make_subclass as_subclass new sparse_mask sparse_resize_ to_sparse to_mkldnn coalesce format
""".split()


@pytest.mark.parametrize("name", FORBIDDEN_METHODS)
def test_forbidden_methods(name: str) -> None:
    with pytest.raises(TargetError):
        targets.check_method(name)


def test_names_and_functions_correspond() -> None:
    for name, function in targets.functions().items():
        assert targets.resolve(name) is function
        assert targets.resolve(targets.name_of(function)) is function


def test_nothing_allowed_leads_to_modules_files_or_code() -> None:
    home = ("torch", "_operator", "operator", "math", "builtins", None)
    for name, function in targets.functions().items():
        module = getattr(function, "__module__", None)
        assert module is None or module.split(".")[0] in home, (name, module)
        assert not isinstance(function, type), name
    allowed_builtins = {n.split(".")[1] for n in targets.functions() if n.startswith("builtins.")}
    assert allowed_builtins <= {"abs", "len", "max", "min", "pow", "round", "sum", "getattr"}


def test_every_overload_in_reach_takes_tensors_and_plain_constants() -> None:
    reached = 0
    for schema in torch._C._jit_get_all_schemas():
        namespace, _, base = schema.name.partition("::")
        if namespace not in ("aten", "prims"):
            continue
        try:
            targets.resolve(f"torch.ops.{namespace}.{base}.{schema.overload_name or 'default'}")
        except TargetError:
            continue
        reached += 1
        types = " ".join(str(value.type) for value in [*schema.arguments, *schema.returns])
        assert not any(word in types for word in ("Storage", "Stream", "Any", "RRef", "Future", "QScheme", "__torch__"))
        names = {value.name for value in schema.arguments if "str" in str(value.type)}
        assert not names & {"filename", "file", "path", "name", "key", "self", "message"}
    assert reached > 1000


def test_overloads_that_backward_graphs_need() -> None:
    for name in ("convolution_backward.default", "_softmax_backward_data.default", "gelu_backward.default"):
        assert targets.name_of(targets.resolve(f"torch.ops.aten.{name}")) == f"torch.ops.aten.{name}"


def test_functions_outside_have_no_name() -> None:
    for function in (torch.load, eval, operator.attrgetter("x"), lambda x: x, torch.ops.aten.from_file.default):
        with pytest.raises(TargetError):
            targets.name_of(function)


def test_a_graph_with_a_forbidden_call_is_not_rebuilt() -> None:
    for op in (
        Op("function", "torch.ops.aten.from_file.default", ("/etc/passwd",), {}),
        Op("method", "data_ptr", (Ref(0),), {}),
    ):
        with pytest.raises(TargetError):
            to_module(Graph(1, (op,), Ref(1)), "cpu")


def test_public_spellings_are_of_the_same_object() -> None:
    spellings = targets.spellings()
    for name, stored in (("torch.functional.einsum", "torch.einsum"), ("torch.conv2d", "torch.nn.functional.conv2d")):
        assert spellings[name] == stored
    assert spellings.keys() >= targets.functions().keys()
    assert "torch.functional.boolean_dispatch" not in spellings
    assert "torch.load" not in spellings


def test_documented_aliases_compute_the_same() -> None:
    table = targets.documented_aliases()
    assert table["torch.clip"] == "torch.clamp"
    assert table["torch.sigmoid"] == "torch.special.expit"
    assert table[".clip_"] == ".clamp_"
    assert not set(table.values()) & table.keys()  # chains are followed to their end
    x, compared = torch.rand(4, 4) * 0.5 + 0.25, 0
    for name, other in table.items():
        if name.startswith("."):
            continue
        try:
            expected, found = targets.resolve(other)(x), targets.resolve(name)(x)
        except (TypeError, RuntimeError):
            continue  # takes more than a matrix
        compared += 1
        pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
        assert all(torch.equal(one.nan_to_num(7), two.nan_to_num(7)) for one, two in pairs), name
    assert compared > 20
