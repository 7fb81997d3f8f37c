"""Cheap launches: what they take, when they leave Triton's own path, and what they hand to the driver then.

There is no GPU here: a driver of Triton's and functions of CUDA's driver that note what they would launch stand in for
the real ones, and kernels compile for an H200.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from passbench.child.filled_memory import filled_memory
from passbench.launch import Launch, LaunchPlan, PlanTable, empty_strided, plan_for
from tests.support.cuda_driver import skip_without_native

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import json
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction
from torch._C._dynamo import guards
from passbench.launch import Launch, LaunchPlan, bound_kernel, guarded_call
from tests.support.cuda_driver import CudaDriver

triton_runs, found, names, kinds = [], {}, {}, []
cuda = CudaDriver({}, device=-1)


class Utils:
    def load_binary(self, name, kernel, shared, device):
        number = 1000 + len(names)
        names[number], cuda.kinds[number] = "function " + name, kinds[-1]
        return "module", number, 32, 0, 1024

    def get_device_properties(self, device):
        return {"max_shared_mem": 232448, "multiprocessor_count": 132, "warpSize": 32}

    def unload_module(self, module):
        pass


class Launcher:
    def __init__(self, source, metadata):
        types = [t for t in source.signature.values() if t != "constexpr"]
        these = [{"u1": "B", "i32": "i", "i64": "l"}.get(t, "O") for t in types]
        kinds.append("".join(these) + "OO")  # two scratch buffers

    def __call__(self, x, y, z, stream, function, metadata, extra, enter, leave, *arguments):
        given = [a.data_ptr() if isinstance(a, torch.Tensor) else a for a in arguments]
        triton_launches.append([x, y, z, stream, names[function], given, "Triton's"])


functions = cuda.functions()
bound_kernel.driver = lambda: functions
triton_launches = []


def reached():
    mine = [
        [*r.grid, r.stream, names[r.function], r.arguments, f"{r.threads} threads, {cuda.kinds[r.function]}"]
        for r in cuda.runs
    ]
    return [*triton_launches, *mine]


def forget():
    cuda.runs.clear()
    triton_launches.clear()
    triton_runs.clear()


class Driver:
    utils = Utils()
    launcher_cls = Launcher
    get_current_device = staticmethod(lambda: -1)
    get_current_stream = staticmethod(lambda device: 7)
    get_current_target = staticmethod(lambda: GPUTarget("cuda", 90, 32))
    get_active_torch_device = staticmethod(lambda: torch.device("cpu"))


driver.set_active(Driver())
run = JITFunction.run


def counted(self, *args, **kwargs):
    triton_runs.append(1)
    return run(self, *args, **kwargs)


JITFunction.run = counted
from kernels import scale_kernel

x, out, y = (torch.zeros(160) for _ in range(3))


def launched(what, *tensors):
    forget()
    what(*tensors)
    return {"triton": len(triton_runs), "calls": reached(), "tensors": [t.data_ptr() for t in tensors]}


launch = Launch(scale_kernel, (3,), n=150, factor=2.0, num_warps=2)
found["first"] = launched(launch, x, out)
found["again"] = launched(launch, x, out)
found["others"] = launched(launch, y, x)
found["unaligned"] = launched(launch, x[1:], out)
found["another dtype"] = launched(launch, x.double(), out)
found["as before"] = launched(launch, x, out)
launch_of_all = launch
late = Launch(scale_kernel, (3, 2), n=150, factor=2.0)
found["begins unaligned"] = launched(late, x[1:], out)
found["then aligned"] = launched(late, x, out)
found["from then on"] = launched(late, x, out)
for name, n in (("one", 1), ("long", 1 << 40), ("flag", True), ("nothing", 150), ("less", 150), ("too many", 150)):
    grid = {"nothing": (0,), "less": (-1,), "too many": (1 << 20, 1 << 12)}.get(name, (1,))
    launch = Launch(scale_kernel, grid, n=n, factor=2.0)
    launch(x, out)
    found[name] = launched(launch, x, out)
guarded_call.empty_on_current_device = guards._empty_strided_cpu
first, second = (Launch(scale_kernel, (2,), n=100, factor=f) for f in (2.0, 3.0))
layout = ((100,), (1,), torch.float32)
plan = LaunchPlan(2, layout, layout, (first, (0, 1)), (second, (1, 3)), (first, (3, 2)))
plan(x, out)
plans = (("plan", (x, out)), ("plan, unaligned", (x[1:], out)), ("plan, another dtype", (x.double(), out)))
for name, inputs in (*plans, ("plan, again", (y, out)), ("plan, recorded", (x, y))):
    forget()
    cuda.capturing = int(name == "plan, recorded")
    fresh = plan(*inputs)
    places = [t.data_ptr() for t in (*inputs, *fresh)]
    found[name] = {"triton": len(triton_runs), "tensors": [[places.index(p) for p in c[5][:2]] for c in reached()]}
    found[name]["fresh"] = [[*t.shape, str(t.dtype)] for t in fresh]
    found[name]["graphs"] = [r.graph is not None for r in cuda.runs]
cuda.capturing = 0
cuda.errors.append(201)
found["a thread without a context"] = {**launched(launch_of_all, x, out), "contexts": cuda.contexts}
cuda.errors.append(700)
try:
    launch_of_all(x, out)
except RuntimeError as error:
    found["refused"] = str(error)
for name, wrong in (("no tensors", (1.0, 2.0)), ("too few", (x,))):
    for each in (launch_of_all, plan):
        try:
            each(*wrong)
        except (TypeError, AttributeError, ValueError) as error:
            found.setdefault(name, []).append(type(error).__name__)
spare = LaunchPlan(3, layout, (first, (0, 3)))
spare(x, out, y)
for wrong in (1.0, x.untyped_storage()):
    for each in (spare, spare.by_launches):
        try:
            each(x, out, wrong)
        except AttributeError as error:
            found.setdefault("spare", []).append(str(error))
try:
    LaunchPlan(1, *[layout] * 4096, (first, (0, 1)))(x)
except ValueError as error:
    found["large"] = str(error)
print(json.dumps(found))
"""
"""A process of its own, for Triton has one driver. The CPU's tensors have device -1 and stand for the GPU's."""

KERNEL = """
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, out, n, factor: tl.constexpr, BLOCK: tl.constexpr = 64):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory, torch_forks):
    """For each launch of the program: how often Triton's own path was taken, and what reached the driver."""
    skip_without_native()
    directory = tmp_path_factory.mktemp("launch")
    (directory / "kernels.py").write_text(KERNEL)
    program = f"import sys\nsys.path[:0] = [{str(ROOT)!r}, {str(directory)!r}]\n{PROGRAM}"
    done = torch_forks(program)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


OTHERS = ("refused", "no tensors", "too few", "spare", "large")
SPECIAL = ("one", "long", "flag", "nothing", "less", "too many")


def test_every_launch_reaches_the_driver_once_and_with_its_tensors(found):
    for name, one in found.items():
        if name in OTHERS:
            continue
        if name.startswith("plan"):
            assert one["tensors"] == [[0, 1], [1, 3], [3, 2]], name
            assert one["fresh"] == [[100, "torch.float32"]] * 2, name
            continue
        (call,) = one["calls"]
        grid = [3, 2, 1] if name in ("begins unaligned", "then aligned", "from then on") else [3, 1, 1]
        if name not in SPECIAL:
            assert call[:5] == [*grid, 7, "function scale_kernel"], name
        assert call[5][:2] == one["tensors"], name


def test_later_launches_do_not_pass_through_triton(found):
    cheap = {name for name, one in found.items() if name not in OTHERS and one["triton"] == 0}
    plans = {"plan", "plan, again", "plan, recorded"}
    others = {"again", "others", "as before", "from then on", "one", "long", "flag", "a thread without a context"}
    assert cheap == plans | others


def test_the_driver_gets_what_the_compiled_kernel_takes(found):
    """Two tensors, the numbers that are not in the kernel, and its two scratch buffers."""
    ends = {name: [*found[name]["calls"][0][5][2:], found[name]["calls"][0][6]] for name in ("again", *SPECIAL)}
    assert ends == {
        "again": [150, None, None, "64 threads, OOiOO"],
        "one": [None, None, "128 threads, OOOO"],
        "long": [1 << 40, None, None, "128 threads, OOlOO"],
        "flag": [1, None, None, "128 threads, OOBOO"],
        **{name: [150, 2.0, 64, "Triton's"] for name in ("nothing", "less", "too many")},
    }


def test_launches_of_a_plan_are_one_graph_but_where_they_are_recorded(found):
    graphs = {name: found[name]["graphs"] for name in ("plan", "plan, again", "plan, recorded")}
    assert graphs == {"plan": [True] * 3, "plan, again": [True] * 3, "plan, recorded": [False] * 3}


def test_a_thread_without_a_context_gets_the_devices(found):
    assert found["a thread without a context"]["contexts"] == [4710]


def test_what_the_driver_refuses_is_an_error_with_its_reason(found):
    assert found["refused"] == "CUDA driver error 700 at a launch: a launch that failed"


def test_what_is_no_tensor_is_an_error(found):
    assert len(found["no tensors"]) == len(found["too few"]) == 2


def test_it_is_one_also_where_no_launch_has_it(found):
    """A plan goes launch by launch in observed calls, and a pass must not tell them from others by the error."""
    number, storage = "'float' object has no attribute 'data_ptr'", found["spare"][2]
    assert found["spare"] == [number, number, storage, storage] and "no attribute 'dtype'" in storage


def test_a_plan_has_few_enough_tensors_for_a_stack(found):
    assert found["large"] == "Launches take at most 4096 tensors"


@triton.jit
def _kernel(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 1.0)


@pytest.mark.parametrize(
    "arguments",
    [(print, (1,), {}), (_kernel, (1.5,), {}), (_kernel, (), {}), (_kernel, [1], {}), (_kernel, (1, 1, 1, 1), {})],
)
def test_only_kernels_and_plain_grids(arguments):
    kernel, grid, constants = arguments
    with pytest.raises(TypeError):
        Launch(kernel, grid, **constants)


def test_only_plain_plans():
    launch = Launch(_kernel, (1,), BLOCK=4)
    for parts in [(0,), (1, (print, (0,))), (1, ((4,), (1,), "float")), (1, (launch, (1,)))]:
        with pytest.raises(TypeError):
            LaunchPlan(*parts)


def test_plans_by_dtype_shape_and_stride():
    x, y = torch.zeros(4, 3), torch.zeros(2)
    table = PlanTable({(*_kind(x), *_kind(y)): "plain", (*_kind(x.t()), *_kind(y)): "transposed"})
    for _ in range(2):
        assert [plan_for(table, x, y)] * 2 + [plan_for(table, x.t(), y)] == ["plain", "plain", "transposed"]
        assert plan_for(table, x[1:], y) is plan_for(table, x.double(), y) is plan_for(table, y, x) is None
        with torch.inference_mode():
            assert plan_for(table, x + 1, torch.nn.Parameter(y)) == "plain"
    with pytest.raises(TypeError, match="PlanTable"):
        plan_for({}, x)


def test_strides_of_dimensions_of_size_1_may_be_others():
    """As those of an `einsum` are, where fake tensors and real ones differ (typical-983ab74b23d8)."""
    x = torch.zeros(2, 1, 3)
    one, other = x.as_strided((2, 1, 3), (3, 3, 1)), x.as_strided((2, 1, 3), (3, 7, 1))
    table = PlanTable({_kind(one): "one", _kind(x.transpose(0, 2)): "turned"})
    assert [plan_for(table, each) for each in (other, one, other)] == ["one"] * 3
    assert plan_for(table, x.as_strided((2, 1, 3), (1, 3, 2))) is None
    both = PlanTable({_kind(one): "one", _kind(other): "other"})
    assert [plan_for(both, each) for each in (one, other)] == ["one", "other"], "its own plan first"


def _kind(x):
    return x.dtype, x.shape, x.stride()


def test_tensors_are_no_constants():
    with pytest.raises(TypeError, match="tensors"):
        Launch(_kernel, (1,), BLOCK=torch.tensor(4))


@triton.jit
def _mixed_kernel(x, out, n, big, scale, FACTOR: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n) * scale * FACTOR + (big >> 40)
    tl.store(out + at, value, mask=at < n)


def _mixed(n: int, **options) -> Launch:
    return Launch(_mixed_kernel, (2,), n=n, big=3 << 40, scale=0.5, FACTOR=4, BLOCK=128, **options)


def _wanted(x, n):
    return torch.cat([x[:n] * 2 + 3, torch.zeros_like(x[n:])])


@pytest.mark.gpu
@pytest.mark.parametrize("n", [1, 16, 17, 200])
def test_both_ways_on_a_gpu(n):
    launch = _mixed(n, num_warps=2)
    for first, dtype in ((0, torch.float32), (0, torch.float32), (1, torch.float32), (0, torch.float16)):
        x = torch.randn(256, device="cuda").to(dtype)[first:]
        out = torch.zeros_like(x)
        launch(x, out)
        assert torch.allclose(out, _wanted(x, n), atol=1e-2)
    assert launch._Launch__bound


@pytest.mark.gpu
def test_a_plan_on_a_gpu():
    layout = ((256,), (1,), torch.float32)
    plan = LaunchPlan(1, layout, layout, (_mixed(256), (0, 1)), (_mixed(256, num_warps=2), (1, 2)))
    kept = []
    for first in (0, 0, 0, 1, 0):
        x = torch.randn(256 + first, device="cuda")[first:]
        kept.append((x, *plan(x)))
    assert plan._LaunchPlan__bound
    for x, one, two in kept:
        assert torch.allclose(one, x * 2 + 3) and torch.allclose(two, one * 2 + 3)
    assert len({t.data_ptr() for _, *fresh in kept for t in fresh}) == 10


@pytest.mark.gpu
def test_the_first_that_a_thread_asks_of_cuda_is_a_launch():
    launch, plan = _mixed(256), LaunchPlan(1, ((256,), (1,), torch.float32), (_mixed(256), (0, 1)))
    x = torch.randn(256, device="cuda")
    out = torch.zeros_like(x)
    launch(x, out), plan(x), plan(x)
    for call in (lambda: (launch(x, out), out)[1], lambda: plan(x)):
        out.zero_()
        torch.cuda.synchronize()
        with ThreadPoolExecutor(1) as thread:
            got = thread.submit(call).result()
        assert torch.equal(got, _wanted(x, 256))


@pytest.mark.gpu
def test_a_graph_and_another_stream():
    launch, x = _mixed(200), torch.randn(256, device="cuda")
    out = torch.zeros_like(x)
    launch(x, out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch(x, out)
    x.normal_()
    out.zero_()
    graph.replay()
    assert torch.equal(out, _wanted(x, 200))
    stream = torch.cuda.Stream()
    y, late = torch.zeros_like(x), torch.randn_like(x)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        y.copy_(late)
        launch(y, out)  # must wait for the copy
    stream.synchronize()
    assert torch.equal(out, _wanted(late, 200))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_fresh_memory(device):
    x = torch.ones(2, device=device)
    made = empty_strided((3, 4), (1, 3), torch.float16, x)
    assert (made.shape, made.stride(), made.dtype, made.device) == ((3, 4), (1, 3), torch.float16, x.device)
    assert empty_strided(x.shape, x.stride(), x.dtype, x).shape == (2,)
    with filled_memory():
        assert empty_strided((8,), (1,), torch.float32, x).isnan().all()
