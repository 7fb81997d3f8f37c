import math
import time

import pytest

from extraction.analysis.prepared import Prepared, prepare
from extraction.cutting.cut import fusible_ranges
from extraction.cutting.measured_kernels import (
    MAX_OPS,
    MeasureError,
    OutOfTimeError,
    count,
    measure,
    measured_ranges,
    prefix,
    scheduled,
)
from extraction.kernels.lowering import kernels_by_op
from extraction.kernels.profiled_launches import Launches, in_code, in_trace
from storage.graph.record import Graph, Op, Ref
from storage.records import Input, TracedGraph
from tests.support.graphs import corpus


def _call(target: str, *args: object) -> Op:
    return Op("function", target, args, {})


def _prepared(*ops: Op, inputs: tuple[Input, ...] = (Input("x", "input", "float32", (8, 8), (8, 1)),)) -> Prepared:
    graph = Graph(len(inputs), ops, (Ref(len(inputs) + len(ops) - 1),))
    return prepare(TracedGraph("test:made", 0, graph, inputs))


MATMUL, RELU = "torch.matmul", "torch.relu"


# What a trace shows; the events are as kineto writes them


def _operator(name: str, ts: float, dur: float, external: int) -> dict:
    return {"ph": "X", "cat": "cpu_op", "name": name, "ts": ts, "dur": dur, "args": {"External id": external}}


def _launch(ts: float, correlation: int, kind: str = "cuda_runtime") -> dict:
    args = {"correlation": correlation}
    return {"ph": "X", "cat": kind, "name": "cudaLaunchKernel", "ts": ts, "dur": 1, "args": args}


def _kernel(name: str, ts: float, correlation: int, external: int = 0) -> dict:
    args = {"correlation": correlation, "External id": external}
    return {"ph": "X", "cat": "kernel", "name": name, "ts": ts, "dur": 2, "args": args}


def test_a_library_call_counts_once_whatever_it_launches() -> None:
    events = [
        {"ph": "M", "name": "process_name"},
        _operator("## Call CompiledFxGraph ##", 0, 100, 1),
        _operator("triton_poi_fused_relu_0", 5, 5, 2),
        _launch(6, 11, "cuda_driver"),
        _kernel("triton_poi_fused_relu_0", 20, 11),
        _operator("aten::convolution", 30, 20, 3),
        _operator("aten::cudnn_convolution", 32, 15, 4),
        _launch(34, 12),
        _kernel("nchwToNhwcKernel", 40, 12),
        _launch(36, 13),
        _kernel("sm90_xmma_fprop", 45, 13),
        _operator("aten::mm", 55, 5, 5),
        _kernel("gemm", 70, 99, external=5),  # its launch was not seen
        _operator("aten::empty", 62, 2, 6),
        {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoD", "ts": 90, "dur": 1, "args": {"correlation": 14}},
    ]
    found = in_trace(events)
    assert found == Launches(("triton_poi_fused_relu_0",), ("aten::convolution", "aten::mm"))
    assert found.kernels == 3


def test_equal_calls_count_each_and_so_do_kernels_without_an_operator() -> None:
    events = [
        *(_operator("aten::mm", ts, 5, ts) for ts in (10, 20)),
        *(_launch(ts + 1, ts) for ts in (10, 20)),
        *(_kernel("gemm", ts + 30, ts) for ts in (10, 20)),
        _kernel("stray", 60, 1000),
        _kernel("stray", 61, 1001),
    ]
    assert in_trace(events).called == ("aten::mm", "aten::mm", "stray", "stray")


CUDA_CODE = """
triton_poi_fused_relu_0 = async_compile.triton('triton_poi_fused_relu_0', '''
''', device_str='cuda')
class Runner:
    def call(self, args):
        arg0_1, arg1_1 = args
        with torch.cuda._DeviceGuard(0):
            buf0 = empty_strided_cuda((8, 8), (8, 1), torch.float32)
            # Topologically Sorted Source Nodes: [y], Original ATen: [aten.relu]
            stream0 = get_raw_stream(0)
            triton_poi_fused_relu_0.run(arg0_1, buf0, 64, stream=stream0)
            buf1 = empty_strided_cuda((8, 8), (8, 1), torch.float32)
            extern_kernels.mm(buf0, reinterpret_tensor(arg1_1, (8, 8), (1, 8), 0), out=buf1)
            buf2 = torch.ops.aten._scaled_dot_product_efficient_attention.default(buf1, buf1, buf1, None, False)
            buf3 = buf2[0]
            assert_size_stride(buf3, (8, 8), (8, 1), 'torch.ops.aten._scaled_dot_product_efficient_attention.default')
            triton_poi_fused_relu_0.run(buf3, buf0, 64, stream=stream0)
            buf4 = extern_kernels.convolution(buf0, arg1_1, stride=(1, 1))
        return (buf0, buf4, )

runner = Runner(partitions=[])
call = runner.call
def benchmark_compiled_module(times=10, repeat=10):
    triton_poi_fused_relu_0.run(arg0_1, buf0, 64, stream=stream0)
"""


def test_what_the_generated_code_calls() -> None:
    found = in_code(CUDA_CODE)
    assert found.generated == ("triton_poi_fused_relu_0",) * 2
    assert [name.rpartition(".")[2] for name in found.called] == ["mm", "default", "convolution"]


# Ranges


def test_ranges_of_prefixes_by_themselves_are_those_of_the_whole_graph() -> None:
    _, convolution, _ = corpus()
    prepared = prepare(convolution)
    alone = measured_ranges(prepared, lambda start, end: scheduled(*prefix(prepared, start, end)))
    assert alone == list(fusible_ranges(prepared)) == [(1, 3), (4, 7), (8, 10), (11, 14)]


def test_views_and_dead_ops_are_not_asked_for() -> None:
    view = Op("method", "view", (Ref(1), 64), {})
    prepared = _prepared(_call(RELU, Ref(0)), view, _call("torch.arange", 4), _call("torch.exp", Ref(2)))
    asked = []

    def kernels(start: int, end: int) -> int:
        asked.append((start, end))
        return 1

    assert measured_ranges(prepared, kernels) == [(0, 4)]
    assert asked == [(0, 4), (0, 1)]


def test_library_calls_are_counted_by_compiling_and_running() -> None:
    prepared = _prepared(_call(MATMUL, Ref(0), Ref(0)), _call(MATMUL, Ref(1), Ref(0)))
    result = measure(prepared, "cpu")
    assert result.ranges == []
    assert {at: c.kernels for at, c in result.counts.items()} == {(0, 1): 1, (0, 2): 2}  # nothing can join the last op
    assert result.seconds > 0


def test_what_cannot_be_measured_says_so() -> None:
    with pytest.raises(OutOfTimeError, match=r"ops \[0, 2\)"):
        measure(_prepared(_call(MATMUL, Ref(0), Ref(0)), _call(MATMUL, Ref(1), Ref(0))), "cpu", time.monotonic() - 1)
    with pytest.raises(MeasureError, match="too long"):
        measure(_prepared(*(_call(RELU, Ref(n)) for n in range(MAX_OPS + 1))), "cpu")
    with pytest.raises(MeasureError, match="nosuch"):
        count(
            Graph(1, (_call("torch.nosuch", Ref(0)),), (Ref(1),)), [Input("x", "input", "float32", (8,), (1,))], "cpu"
        )
    pair = _prepared(
        _call("torch.max", Ref(0), 1), _call("operator.getitem", Ref(1), 0), _call("operator.getitem", Ref(1), 1)
    )
    with pytest.raises(MeasureError, match="other than a tensor"):
        prefix(pair, 1, 2)


@pytest.mark.gpu
def test_launches_on_a_gpu() -> None:
    table = Input("table", "parameter", "float32", (11, 8), (8, 1), mean=0.0, std=1.0)
    ids = Input("ids", "input", "int64", (4, 6), (6, 1), low=0.0, high=10.0)
    embedding = _call("torch.nn.functional.embedding", Ref(1), Ref(0))
    ops = (embedding, _call(RELU, Ref(2)), _call(MATMUL, Ref(3), Ref(3)), _call("torch.exp", Ref(4)))
    shape = Op("method", "transpose", (Ref(3), 1, 2), {})
    ops = (*ops[:2], shape, _call(MATMUL, Ref(3), Ref(4)), _call("torch.exp", Ref(5)))
    prepared = _prepared(*ops, inputs=(table, ids))
    result = measure(prepared, "cuda")
    assert result.ranges == [(0, 2)]
    assert all(c.kernels == c.in_code.kernels for c in result.counts.values())
    assert result.counts[3, 5].kernels == 2
    kernels = tuple(tuple(sorted(k)) for k in kernels_by_op(prepared.graph, (table, ids), "cuda"))
    traced = TracedGraph("test:made", 0, prepared.graph, (table, ids), kernels)
    assert list(fusible_ranges(prepare(traced))) == result.ranges
    assert math.isfinite(result.seconds)
