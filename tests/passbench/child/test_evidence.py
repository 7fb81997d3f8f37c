"""What runs inside replacements. As a script, the child of these tests: `GRAPH DIRECTORY` → an observation in hex."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import fx

from passbench.checking.evidence import FREE, jit_functions, judge, library_ops
from passbench.child.interpreter.triton_interpreter import untimed_autotuning
from passbench.child.observing.device import between_marks
from passbench.child.observing.observe import observe
from passbench.child.observing.operators import comes_to_the_host
from passbench.contract import PassFiles, load_rules, read_pass_dir
from passbench.ipc.observation import BYTES, MAX_NAMES, NAME_BYTES, Observation
from passbench.matching.rewrite import apply_pass
from passbench.policy import allowlists
from tests.passbench.samples import PASSES, fx_graph

ROOT = Path(__file__).parents[3]
NO_FILES = PassFiles((), {}, ())
PLAIN = {"aten.empty_like.default"}


def in_place(x, y):
    x += y
    return (torch.exp(x),)


def both(x, y):
    total = x + y
    return torch.relu(total) * 2, total


GRAPHS: dict[str, tuple[Callable, tuple[tuple[int, ...], ...]]] = {
    "add_relu": (lambda x, y: (torch.relu(torch.exp(x) + y) @ y.t(),), ((3, 40), (3, 40))),
    "cheap_launch": (lambda x, y: (torch.relu(torch.exp(x) + y) @ y.t(),), ((3, 40), (3, 40))),
    "layer_norm": (lambda x, w, b: (F.layer_norm(x.t(), (48,), w, b, 1e-5),), ((48, 5), (48,), (48,))),
    "two_outputs": (both, ((50,), (50,))),
    "in_place": (in_place, ((50,), (50,))),
    "shared_helper": (lambda x, y: (torch.relu(x + y), torch.sigmoid(y + x)), ((300,), (300,))),
}
HONEST = {
    "add_relu": (PLAIN, {"add_relu_kernel"}),
    "cheap_launch": (PLAIN, {"add_relu_kernel"}),
    "layer_norm": (PLAIN | {"aten.clone.default"}, {"layer_norm_kernel"}),
    "two_outputs": (PLAIN, {"kernel"}),
    "in_place": (set(), {"kernel"}),
    "shared_helper": (PLAIN, {"add_activation_kernel"}),
}
"""Pass and graph of one name → operators and Triton kernels inside the replacement."""

LAUNCH = "    add_relu_kernel[(triton.cdiv(n, 256),)](x, y, out, n, BLOCK=256)\n"
OUT = "    out = torch.empty_like(x)\n"
BY_OTHER_ROADS = {
    "method": (LAUNCH, "    return x.add(y).clamp_(min=0.0)\n", {"aten.add.Tensor", "aten.clamp_.default"}),
    "decoy": (
        LAUNCH,
        LAUNCH + "    out = torch.addmm(x, y, torch.ones(40, 40))\n",
        {"aten.addmm.default", "aten.ones.default"},
    ),
    "in_the_grid": (
        LAUNCH,
        "    add_relu_kernel[lambda meta: (x.abs().size(0),)](x, y, out, n, BLOCK=256)\n",
        {"aten.abs.default"},
    ),
    "in_a_hook": (
        LAUNCH,
        "    add_relu_kernel.pre_run_hooks[:] = [lambda *a, **k: a[2].copy_(a[0] + a[1])]\n" + LAUNCH,
        {"aten.add.Tensor", "aten.copy_.default"},
    ),
    "out_variant": (OUT, OUT + "    torch.add(x, y, out=out)\n", {"aten.add.out"}),
}
"""The honest `add_relu` with a part of its wrapper exchanged → operators that show it, `empty_like` aside."""


def loaded(graph: str, directory: Path, device: str = "cpu") -> tuple[fx.GraphModule, list[fx.Node], list]:
    """The rewritten graph, the replacements in it, and inputs."""
    function, shapes = GRAPHS[graph]
    rules = load_rules(directory, read_pass_dir(directory).names)
    module = fx.GraphModule(torch.nn.Module(), fx_graph(function))
    assert apply_pass(module.graph, rules).total
    module.recompile()
    targets = {rule.replacement for rule in rules}
    inputs = [torch.randn(shape, device=device) for shape in shapes]
    return module, [node for node in module.graph.nodes if node.target in targets], inputs


def main(jobs: list[str]) -> None:
    """One line a pair of arguments."""
    untimed_autotuning()
    for graph, directory in zip(jobs[::2], map(Path, jobs[1::2]), strict=True):
        module, replacements, inputs = loaded(graph, directory)
        with torch.no_grad():
            print(observe(module, replacements, [inputs], []).encode().hex())


@pytest.fixture(scope="module")
def observed(tmp_path_factory, torch_forks) -> dict[str, tuple[Path, Observation]]:
    """Every pass of these tests, observed under Triton's interpreter in one child."""
    jobs = {name: (name, PASSES / name) for name in HONEST}
    jobs |= {name: ("add_relu", PASSES / name) for name in ("operators", "aliases")}
    source = read_pass_dir(PASSES / "add_relu").files
    for name, (old, new, _) in BY_OTHER_ROADS.items():
        directory = tmp_path_factory.mktemp(name)
        for file, text in source.items():
            assert old in text or not file.endswith(".py")
            (directory / file).write_text(text.replace(old, new))
        jobs[name] = ("add_relu", directory)
    arguments = [str(part) for job in jobs.values() for part in job]
    program = f"from tests.passbench.child import test_evidence; test_evidence.main({arguments!r})"
    child = torch_forks(program, os.environ | {"TRITON_INTERPRET": "1"}, ROOT)
    assert child.returncode == 0, child.stderr
    lines = child.stdout.split()
    found = (Observation.decode(bytes.fromhex(line)) for line in lines)
    return {name: (job[1], one) for (name, job), one in zip(jobs.items(), found, strict=True)}


def verdict(directory: Path, observation: Observation) -> str | None:
    return judge(observation, read_pass_dir(directory))


@pytest.mark.parametrize("name", HONEST)
def test_honest_passes(observed, name):
    directory, observation = observed[name]
    operators, kernels = HONEST[name]
    assert (set(observation.operators), set(observation.triton_kernels)) == (operators, kernels)
    assert (observation.kernels, observation.profiled, observation.overflow) == ((), False, False)
    assert verdict(directory, observation) is None


def test_a_pass_that_launches_nothing_is_not_judged(observed):
    directory, observation = observed["aliases"]
    assert observation == Observation()
    assert verdict(directory, observation) is None


def test_torch_operators(observed):
    directory, observation = observed["operators"]
    assert set(observation.operators) == {"aten.add.Tensor", "aten.gt.Scalar", "aten.mul.Tensor"}
    assert verdict(directory, observation) is None
    assert library_ops(observation) == ("aten.add", "aten.gt", "aten.mul")


@pytest.mark.parametrize("name", BY_OTHER_ROADS)
def test_operators_are_seen_by_every_road(observed, name):
    directory, observation = observed[name]
    assert set(observation.operators) - PLAIN == BY_OTHER_ROADS[name][2]
    assert verdict(directory, observation) is None
    assert library_ops(observation)
    assert observation.triton_kernels == (() if name == "method" else ("add_relu_kernel",))


def test_a_triton_kernel_of_somebody_else(observed):
    reason = verdict(PASSES / "layer_norm", observed["add_relu"][1])
    assert reason.startswith("evidence_kernel: add_relu_kernel ran inside the replacement")


def module_of(*functions: Callable) -> tuple[fx.GraphModule, list[fx.Node]]:
    """A graph that applies functions one after another; the nodes of all."""
    graph = fx.Graph()
    value = graph.placeholder("x")
    nodes = []
    for function in functions:
        value = graph.call_function(function, (value,))
        nodes.append(value)
    graph.output(value)
    return fx.GraphModule(torch.nn.Module(), graph), nodes


def test_only_replacements_count_and_tensors_stay_plain():
    types = []

    def look(x):
        types.append(type(x))
        return x

    module, nodes = module_of(torch.exp, look, torch.neg, look, torch.tanh)
    observation = observe(module, [nodes[1], nodes[2]], [[torch.ones(3)]], [])
    assert observation == Observation(operators=("aten.neg.default",))
    assert types == [torch.Tensor] * 2


def test_a_replacement_has_as_many_frames_left_as_in_a_timed_call():
    left = []

    def depth(n):
        try:
            return depth(n + 1)
        except RecursionError:
            return n

    def probe(x):
        left.append(depth(0))
        return x

    module, nodes = module_of(torch.exp, probe)
    limit = sys.getrecursionlimit()
    module.forward(torch.ones(3))
    observation = observe(module, nodes[1:], [[torch.ones(3)]], [])
    assert left[0] == left[1] and sys.getrecursionlimit() == limit
    assert observation.deep and judge(observation, NO_FILES).startswith("evidence_deep")


def test_what_a_pass_raises_comes_through_and_nothing_stays_patched():
    from triton.runtime.jit import JITFunction

    def fail(x):
        raise KeyError("of the pass")

    before = JITFunction.run
    module, nodes = module_of(torch.exp, fail)
    with pytest.raises(KeyError) as raised:
        observe(module, nodes, [[torch.ones(3)]], [])
    assert raised.value.args == ("of the pass",)
    assert JITFunction.run is before
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None


X, STRIDED, PAIRS = torch.randn(4, 6), torch.randn(6, 4).t(), torch.randn(2, 3, dtype=torch.complex64)
ALLOCATIONS = {
    "empty": lambda: (torch.empty(2), torch.empty(1, 2, 2, 2, memory_format=torch.channels_last)),
    "empty_like": lambda: torch.empty_like(STRIDED),
    "empty_strided": lambda: torch.empty_strided((2,), (1,)),
    "zeros": lambda: (torch.zeros(2), torch.zeros(2, dtype=torch.bool)),
    "zeros_like": lambda: torch.zeros_like(X, dtype=torch.float16),
    "ones": lambda: torch.ones(2),
    "ones_like": lambda: torch.ones_like(X),
    "full": lambda: torch.full((2,), 2.0),
    "full_like": lambda: torch.full_like(X, 2),
    "tensor": lambda: (torch.tensor([1, 2]), torch.tensor(1.5)),
    "scalar_tensor": lambda: torch.scalar_tensor(1.5),
    "as_tensor": lambda: (torch.as_tensor([1, 2]), torch.as_tensor(1.5), torch.as_tensor(X, dtype=torch.float16)),
}
METHODS = {
    "view": lambda: (X.view(-1), X.view(torch.int32)),
    "view_as": lambda: X.view_as(X),
    "reshape": lambda: (X.reshape(24), STRIDED.reshape(24), STRIDED.reshape(4, 3, 2)),
    "flatten": lambda: STRIDED.flatten(),
    "unflatten": lambda: X.unflatten(1, (2, 3)),
    "squeeze": lambda: (X.squeeze(), X.squeeze(0), X.squeeze((0, 1))),
    "unsqueeze": lambda: X.unsqueeze(0),
    "transpose": lambda: X.transpose(0, 1),
    "permute": lambda: X.permute(1, 0),
    "expand": lambda: X.expand(2, 4, 6),
    "expand_as": lambda: X.expand_as(X),
    "t": lambda: X.t(),
    "narrow": lambda: X.narrow(0, 0, 2),
    "select": lambda: X.select(0, 0),
    "as_strided": lambda: X.as_strided((2,), (1,)),
    "unbind": lambda: X.unbind(),
    "split": lambda: (X.split(2), X.split([1, 3])),
    "chunk": lambda: X.chunk(3),
    "movedim": lambda: X.movedim(0, 1),
    "swapaxes": lambda: X.swapaxes(0, 1),
    "ravel": lambda: STRIDED.ravel(),
    "detach": lambda: X.detach(),
    "contiguous": lambda: (X.contiguous(), STRIDED.contiguous()),
    "new_empty": lambda: X.new_empty(2),
    "new_zeros": lambda: X.new_zeros(2),
    "new_ones": lambda: X.new_ones(2),
    "new_full": lambda: X.new_full((2,), 1),
    "new_empty_strided": lambda: X.new_empty_strided((2,), (1,)),
    "T": lambda: X.T,
    "mT": lambda: X.mT,
    "H": lambda: PAIRS.H,
    "mH": lambda: PAIRS.mH,
    "real": lambda: PAIRS.real,
    "imag": lambda: PAIRS.imag,
}
SYNTAX = {
    "zero_": lambda: X.clone().zero_(),
    "fill_": lambda: X.clone().fill_(1).fill_(torch.ones(())),
    "subscripts": lambda: (X[0], X[..., None, 1:3], X[...], X[:]),
    "iteration": lambda: list(X),
    "restore_value": lambda: X.clone().copy_(X),  # what triton.autotune does
}


@pytest.mark.parametrize("grad", [True, False])
def test_allocations_views_copies_and_casts_are_no_library_operators(grad):
    assert {f"torch.{name}" for name in ALLOCATIONS} == allowlists.ALLOCATORS - {"passbench.launch.empty_strided"}
    assert set(METHODS) == (allowlists.VIEW_METHODS | allowlists.VIEW_ATTRIBUTES) - {"values", "indices"}
    found = set()
    for name, function in (ALLOCATIONS | METHODS | SYNTAX).items():
        module, nodes = module_of(lambda x, function=function: function())
        with torch.set_grad_enabled(grad):
            observation = observe(module, nodes, [[X]], [])
        assert judge(observation, NO_FILES) is None, name
        assert library_ops(observation) == (), name
        found |= {operator.split(".")[1] for operator in observation.operators}
    assert found == FREE - {"_reshape_alias"}


LIBRARY = {
    "mm": (lambda x: x @ x.t(), "mm"),
    "sum": (lambda x: x.sum(), "sum"),
    "cumsum": (lambda x: x.float().double().cumsum(0), "cumsum"),
    "cat": (lambda x: torch.cat([x, x]), "cat"),
    "softmax": (lambda x: F.softmax(x, 0), "_softmax"),
    "in_place": (lambda x: x.clone().add_(1), "add_"),
    "arange": (lambda x: torch.arange(4), "arange"),
    "repeat": (lambda x: x.repeat(2, 1), "repeat"),
    "overload": (lambda x: torch.ops.aten.relu(x), "relu"),
    "einsum": (lambda x: torch.einsum("ij->ji", x).exp(), "exp"),
    "gather": (lambda x: x.gather(0, x.long()), "gather"),
    "index": (lambda x: x[x.long()], "index"),
    "indices": (lambda x: x[x[0].long(), [0]], "index"),
    "linear": (lambda x: F.linear(x, x, x[0]), "addmm"),
    "convolution": (lambda x: F.conv2d(x[None, None], x[None, None]), "convolution"),
    "attention": (lambda x: F.scaled_dot_product_attention(*[x[None, None]] * 3), None),
}


@pytest.mark.parametrize("name", LIBRARY)
def test_operators_that_compute_are_allowed_and_named(name):
    function, operator = LIBRARY[name]
    module, nodes = module_of(function)
    with torch.no_grad():
        observation = observe(module, nodes, [[torch.zeros(1, 1)]], [])
    assert judge(observation, NO_FILES) is None
    assert operator is None or f"aten.{operator}" in library_ops(observation)
    assert library_ops(observation)


READING = {
    "item": lambda x: x.item(),
    "float": lambda x: float(x),
    "truth": lambda x: x if x.sum() > 0 else -x,
    "mask": lambda x: x[x > 0],
    "nonzero": lambda x: x.nonzero(),
    "equal": lambda x: torch.equal(x, x),
    "size": lambda x: torch.empty(x.long().sum()),
    "unique": lambda x: x.unique(),
    "masked_select": lambda x: x.masked_select(x > 0),
    "list_of_tensors": lambda x: torch.tensor([x[0, 0]]),
    "list_as_index": lambda x: x[[[x.long()[0, 0]]]],
    "list_in_an_index": lambda x: x[:, [x.long()[0, 0]]],
    "list_in_an_index_to_write": lambda x: x.clone().__setitem__((0, (x.long()[0, 0],)), 1.0),
}


@pytest.mark.parametrize("name", READING)
def test_reading_values_is_refused(name):
    module, nodes = module_of(READING[name])
    reason = judge(observe(module, nodes, [[torch.zeros(1, 1)]], []), NO_FILES)
    assert reason.startswith("evidence_read: aten.")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.randn(2), lambda x: x.bernoulli(), lambda x: F.dropout(x, 0.5), lambda x: x.normal_(),
        lambda x: torch.randperm(3), lambda x: torch.rand_like(x),
    ],
)  # fmt: skip
def test_random_operators_are_refused(function):
    module, nodes = module_of(function)
    reason = judge(observe(module, nodes, [[torch.zeros(1, 1)]], []), NO_FILES)
    assert reason.startswith("evidence_operator: aten.")


def test_kernels_of_libraries_are_explained_by_operators_that_compute_and_by_nothing_else():
    names = COMPUTE_KERNELS[:1]
    allowed = Observation.of(["aten.mm.default"], names, ["own"], profiled=True)
    files = PassFiles(("a",), {"a.py": "import triton\n@triton.jit\ndef own(x):\n    pass"}, ())
    assert judge(allowed, files) is None
    assert judge(allowed, NO_FILES).startswith("evidence_kernel: own ran")
    unexplained = Observation.of(["aten.empty.memory_format"], names, ["own"], profiled=True)
    assert judge(unexplained, files).startswith("evidence_kernel: void at::native")
    many = Observation.of(["aten.mm.default"], [f"gemm{i}" for i in range(MAX_NAMES)], ["own"], profiled=True)
    assert many.overflow and many.triton_kernels == ("own",)
    assert judge(many, files) is None


FILLS_AND_COPIES = [
    "Memset (Device)",
    "Memcpy DtoD (Device -> Device)",
    "Memcpy HtoD (Pageable -> Device)",
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int, "
    "at::native::FillFunctor<float>, std::array<char*, 1ul>)",
    "void at::native::unrolled_elementwise_kernel<at::native::FillFunctor<c10::complex<c10::Half> >, "
    "std::array<char*, 1ul>, 4, TrivialOffsetCalculator<0, unsigned int> >(int)",
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::FillFunctor<bool> >"
    "(at::TensorIteratorBase&, at::native::FillFunctor<bool> const&)::{lambda(int)#1}>(int)",
    "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda"
    "(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#7}::operator()() const::{lambda(float)#1}>"
    "(at::TensorIteratorBase&)::{lambda(int)#1}>(int)",
    "void at::native::elementwise_kernel<128, 4, "
    "at::native::gpu_kernel_impl_nocast<at::native::converting_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#1}",
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::"
    "{lambda()#3}::operator()() const::{lambda()#10}::operator()() const::{lambda(c10::Half)#1}, std::array<char*,",
    "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)",
    "void at::native::vectorized_elementwise_kernel<4, at::native::float8_copy_kernel_cuda(at::TensorIteratorBase&)",
]
COMPUTE_KERNELS = [
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
    "(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)",
    "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::BinaryFunctor<float, "
    "float, float, at::native::binary_internal::MulFunctor<float> > >(at::TensorIterator&, at::native::FillFunctor<",
    "void at::native::unrolled_elementwise_kernel<at::native::copysign_kernel_cuda(at::TensorIteratorBase&)",
    "void at::native::(anonymous namespace)::masked_fill_kernel(at::TensorIterator&, c10::Scalar const&)",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, sum> >",
    "void at::native::index_elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda",
    "void cutlass::Kernel2<cutlass_80_wmma_tensorop_f16_s161616gemm_f16_32x32_64x2_nn_align8>(Params)",
    "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
    "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>(cudnn::ops::nchw2nhwc_params_t<float>)",
    "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false>(float, float)",
    "triton_poi_fused_add_relu_0",
    "MemcpyAndMultiply",
]


def kernels(*names: str) -> Observation:
    return Observation.of((), names, (), profiled=True)


@pytest.mark.parametrize("name", FILLS_AND_COPIES)
def test_kernels_of_fills_and_copies_are_allowed(name):
    assert judge(kernels(name), NO_FILES) is None


@pytest.mark.parametrize("name", COMPUTE_KERNELS)
def test_other_kernels_are_refused(name):
    reason = judge(kernels("Memset (Device)", name), NO_FILES)
    assert reason.startswith(f"evidence_kernel: {kernels(name).kernels[0]} ran inside the replacement")


def test_kernels_are_the_pass_s_own_whatever_their_names():
    text = "\n".join(
        [
            "import triton as tr",
            "from triton import jit as compiled",
            *(f"@tr.jit\ndef {name}(x):\n    pass" for name in ("torch_addmm", "cutlass_gemm", "größe", "k" * 130)),
            "@tr.autotune(configs=[], key=[])\n@compiled\ndef FillFunctor(x):\n    pass",
            "def host(x):\n    pass",
        ]
    )
    files = PassFiles(("a",), {"a.py": text, "broken.py": "def"}, ())
    names = ("torch_addmm", "cutlass_gemm", "größe", "k" * 130, "FillFunctor")
    assert judge(kernels(*names), files) is None
    assert len(jit_functions(files)) == 5
    assert judge(kernels("host"), files).startswith("evidence_kernel: host ran")
    assert judge(Observation.of((), (), ("elsewhere",), profiled=False), files).startswith("evidence_kernel: elsewhere")


def test_a_copy_to_the_host_reads_where_no_operator_explains_it():
    copies = ["Memcpy DtoH (Device -> Pageable)", "Memcpy DtoD (Device -> Device)"]
    alone = Observation.of(["aten.lift_fresh.default"], copies, (), profiled=True)
    assert judge(alone, NO_FILES).startswith("evidence_read: ")
    assert judge(Observation.of([], copies[1:], (), profiled=True), NO_FILES) is None
    beside = Observation.of(["aten.linalg_inv_ex.default"], copies, (), profiled=True)
    assert judge(beside, NO_FILES) is None


def test_too_many_names_are_refused_and_operators_come_first():
    many = [f"aten.view.n{i}" for i in range(MAX_NAMES + 1)]
    observation = Observation.of(many, ["Memset (Device)"], (), profiled=True)
    assert observation.overflow and len(observation.operators) == MAX_NAMES and observation.kernels == ()
    assert judge(observation, NO_FILES).startswith("evidence_overflow: more than 64")
    worse = Observation.of([*many, "aten.set_.default"], (), (), profiled=True)
    assert judge(worse, NO_FILES).startswith("evidence_operator: aten.set_.default ran")
    four = Observation.of([f"a.b.{i}" for i in range(5)], (), (), profiled=False)
    assert judge(four, NO_FILES).startswith("evidence_operator: a.b.0, a.b.1, a.b.2 and 2 more ran")


def test_marks():
    mark = "at::cuda::(anonymous namespace)::spin_kernel(long)"
    names = ["before", mark, "a", "b", mark, "between", mark, mark, mark, "a", mark, "after"]
    assert between_marks(names, 6) == {"a", "b"}
    assert between_marks([], 6) is None
    assert between_marks(names, 8) is None
    assert between_marks([mark, "spin_kernel", mark], 2) == {"spin_kernel"}


found_names = st.lists(st.text(max_size=NAME_BYTES + 10), max_size=40)


@given(found_names, found_names, found_names, st.booleans())
def test_round_trip(operators, kernel_names, launched, profiled):
    observation = Observation.of(operators, kernel_names, launched, profiled=profiled)
    data = observation.encode()
    assert len(data) == BYTES
    assert Observation.decode(data) == observation


def check_hostile(data: bytes) -> None:
    try:
        observation = Observation.decode(data)
    except ValueError:
        return
    assert observation.encode() == data
    judge(observation, NO_FILES)


counts = st.tuples(*[st.integers(0, 4)] * 3, *[st.integers(0, 2)] * 5).map(bytes)
slots = st.lists(st.binary(max_size=3) | st.sampled_from([b"aten.mm.default", b"a\0b"]), max_size=6).map(
    lambda names: b"".join(name.ljust(NAME_BYTES, b"\0") for name in names)
)


@given(st.binary(max_size=200) | st.builds(lambda c, s: (c + s).ljust(BYTES, b"\0"), counts, slots))
def test_hostile_bytes(data):
    check_hostile(data)
    check_hostile(data.ljust(BYTES, b"\0")[:BYTES])


@given(st.lists(st.tuples(st.integers(0, BYTES - 1), st.integers(0, 255)), max_size=4))
def test_damaged_bytes(changes):
    data = bytearray(Observation.of(["aten.mm.default", "aten.view.default"], ["k"], ["t"], profiled=True).encode())
    for place, value in changes:
        data[place] = value
    check_hostile(bytes(data))


@pytest.mark.parametrize(
    "data", [b"", bytes(BYTES - 1), b"\xff" * BYTES, b"\1" + bytes(BYTES - 1), b"\0\0\0\2" + bytes(BYTES - 4)]
)
def test_bytes_that_are_no_observation(data):
    with pytest.raises(ValueError):
        Observation.decode(data)


@pytest.mark.gpu
def test_on_a_gpu():
    for name, expected in (("add_relu", None), ("layer_norm", None), ("operators", "evidence_kernel: void at::native")):
        graph = name if name in GRAPHS else "add_relu"
        module, replacements, inputs = loaded(graph, PASSES / name, "cuda")
        module(*inputs)
        observation = observe(module, replacements, [inputs], [])
        assert observation.profiled
        assert verdict(PASSES / name, observation) is None  # the library may be called
        if expected is None:
            assert set(observation.triton_kernels) == HONEST[name][1] <= set(observation.kernels)
            assert not any("exp" in kernel or "gemm" in kernel for kernel in observation.kernels)
        else:
            alone = kernels(*observation.kernels)  # without the operators that launched them
            assert verdict(PASSES / name, alone).startswith(expected)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "bool", "int8", "int64", "complex64"])
def test_host_functions_on_a_gpu(dtype):
    x = torch.ones(64, 48, device="cuda").to(getattr(torch, dtype))

    def host(x):
        y = torch.empty_like(x).copy_(x.t().contiguous().t())
        torch.zeros_like(x), torch.ones_like(x), torch.full_like(x, 1), torch.empty(3, device="cuda").fill_(2)
        x[:, ::2].clone(), y[:, ::3].zero_(), x.t().reshape(-1), torch.as_tensor([1, 2], device="cuda")
        return torch.as_tensor(x, dtype=torch.float32 if not x.is_complex() else torch.complex128)

    module, nodes = module_of(torch.clone, host)
    observation = observe(module, nodes[1:], [[x]], [])
    assert observation.profiled and len(observation.kernels) >= 3
    assert judge(observation, NO_FILES) is None


def test_what_comes_to_the_host_is_seen_by_devices():
    there, here = torch.empty(2, device="meta"), torch.empty(2)  # any device but the CPU is one
    copies = torch.ops.aten._to_copy.default
    assert comes_to_the_host(copies, (there, "cpu"), here)
    assert comes_to_the_host(torch.ops.aten.split_with_sizes.default, (here, there), (there, here))
    assert not comes_to_the_host(copies, (there, here), there)
    assert not comes_to_the_host(copies, (here, 1), [here])
    assert not comes_to_the_host(copies, (), here)


def test_the_state_of_the_generator_of_attention_is_no_value():
    there, state = torch.empty(2, device="meta"), torch.empty((), dtype=torch.long)
    for name in ("efficient", "flash", "cudnn"):
        attention = getattr(torch.ops.aten, f"_scaled_dot_product_{name}_attention").default
        assert not comes_to_the_host(attention, (there, there, there), (there, there, state, state))
        assert judge(Observation.of({str(attention)}, (), (), profiled=True), NO_FILES) is None
