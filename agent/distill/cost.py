"""What replacing a region is expected to save, in microseconds a call: on the host, and on the device.

At the sizes of this benchmark the host decides. What eager's calls cost it is rounded from a fit to
benchmarks/agent/h200_distill (one H200, torch 2.11, triton 3.6: end-to-end medians of eager and of passes, 115 variants
of 39 samples), and what a pass costs it from benchmarks/agent/h100_graph_launches (calls in a loop, beside additions of
eager, which count as 7 us). Between single calls, as PassBench times them, all of this takes up to twice as long. The
device's figures are what moving the bytes takes; a kernel of few programs cannot draw the whole bandwidth, and one that
goes over long rows in a loop waits for each turn of it. All of this ranks regions and says which cannot pay; where
there is a GPU, measuring decides (`agent.distill.tuned`).
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass

from agent.distill.eager.op_effects import Addition, OpEffects, TensorLayout
from agent.distill.eager.sum_order import PROCESSORS, WARP, order_of
from agent.distill.kernels.host_program import Program, Shape, Sketch
from agent.distill.kernels.launch_configs import LaunchLimits
from agent.distill.regions import Region
from storage.graph.record import Op, op_name, refs
from storage.records import contiguous_stride, dtype_of

EAGER_LAUNCH = 7.0
"""One library call that runs something on the device."""
EAGER_SLOW = {"torch.nn.functional.batch_norm": 15.0, "torch._C._nn.pad": 12.5}
"""The same for ops that cost the host more than `EAGER_LAUNCH`."""
EAGER_VIEW = 1.5
"""One op that runs nothing: a view, a tuple taken apart."""
WRAPPER = 5.0
"""One call of a pass's wrapper, without what it sets and allocates: choosing a plan, checking its inputs, and launching
the plan's graph. That takes 3.8: where an addition of eager took 8.2 us, a plan of one launch took 5.6 and choosing it
0.9. The rest is what a kernel in place of one eager kernel must save to be looked at: with less, every op of a graph
would be a region, and what that brings nobody has measured."""
KERNEL = 0.5
"""One launch of a `LaunchPlan`, a node of its graph. A plan took 2.5 us for each further launch with the tensor that it
fills, where an addition of eager took 10.8."""
ALLOCATION = 1.3
"""One output or intermediate of a pass."""
AS_MANY = 3.2
"""What each kernel of a pass must save the host, beside what it costs, where eager has no more launches than the pass.
The device may be slower then: two elementwise kernels, each in place of one, were at 0.83 and 0.86 of eager's speed
(`benchmarks/passbench/h200_table_290`). With this, a wrapper of one kernel and its output counts as 10 us. That was the
cost of every such wrapper for `benchmarks/passbench/h100_one_tree`, where the device runs no pass of `distill-static`
slower than eager."""
BANDWIDTH = 4.0e6
"""Bytes a microsecond that all multiprocessors of an H200 move together; its data sheet has 4.8e6."""
STEP = 1.0
"""What each launch of a CUDA graph costs the device beside moving bytes, about."""
WAIT = 0.8
"""What a program that loops over its columns waits for what a turn loads. On an H100 one of 14 turns took 14 us and one
of 50 turns 80, where they loaded one number after another."""
TURN = 0.25
"""What eager waits in each of its `turns`. On an H100 an interpolation of 2 x 100 channels to 7 x 7 places took 50 us
(`typical-bca28f6735d7` of `benchmarks/passbench/h100_table_276`)."""
COPIED = 3.0e5
"""Elements a microsecond that eager's kernels copy in another order or to another dtype: these work element by element.
On an H100 (tree d89c78e) 2.1e6 elements from float16 to float32 took 7.6 us where a kernel of TorchInductor's took 4.2,
and copies of 0.6, 1.0 and 1.05e6 elements in another order 3.2, 4.8 and 5.4 us. To a half type they read vectors."""
_COPIES = frozenset("clone contiguous reshape flatten to type type_as float _to_copy".split())
RESIDENT = 64
"""Warps that a multiprocessor holds."""
_TAKES_PLACES = frozenset("embedding index_select gather getitem take_along_dim index".split())
"""Ops that read as many elements of a tensor as they return, however large it is."""
AGAIN = 1.5
"""A kernel that writes what its own sums are needed for reads all a second time, mostly from a cache."""
SURE_SHARE, SURE_START = 0.7, 3.0
"""A kernel of a pass is sure to draw this share of the bandwidth after so many microseconds. On an H200 kernels that
move 12.6, 21 and 50 MB took 8.2, 9.4 and 19.4 us; this says 7.5, 10.5 and 20.9."""


def gain(region: Region, known: OpEffects, program: Program) -> float:
    """Time that a call of one variant saves if the program replaces its region; negative if the call gets slower."""
    return sum(_eager_us(region, known)) - _host_us(program) - device_us(program)


@dataclass(frozen=True)
class SureTimes:
    """What a call of one variant takes on the host and on the device: in eager, if that is as good as can be, and in
    kernels that are no better than `SURE_SHARE` says. `copies` is what eager copies behind it, on the device.
    `eager_launches` and `launches` are how many either has."""

    eager_host: float
    eager_device: float
    host: float
    device: float
    copies: float
    eager_launches: int
    launches: int

    @classmethod
    def of(cls, region: Region, known: OpEffects, program: Program, copies: float) -> "SureTimes":
        """The times of one region and the program that replaces it."""
        launches, eager_launches = len(program.launches), sum(known.launches[op] for op in region.ops)
        device = SURE_START * launches + device_us(program) / SURE_SHARE
        eager = _eager_us(region, known, surely=True)
        return cls(*eager, _host_us(program), device, copies, eager_launches, launches)

    def __add__(self, other: "SureTimes") -> "SureTimes":
        return SureTimes(*(ours + theirs for ours, theirs in zip(astuple(self), astuple(other), strict=True)))

    @property
    def saved(self) -> float:
        """What the kernels save. Host and device work at a time, so the one that takes longer counts."""
        host = self.host + (AS_MANY * self.launches if self.launches >= self.eager_launches else 0.0)
        return max(self.eager_host, self.eager_device) - max(host, self.device) + self.copies


def device_gain(region: Region, known: OpEffects, program: Program) -> float:
    """Time that the device saves, which is all that counts in a CUDA graph."""
    steps = sum(known.launches[op] for op in region.ops) - len(program.launches)
    copies = (_slower_us(op, region, known, number) for number, op in zip(region.ops, region.graph.ops, strict=True))
    return STEP * steps + _eager_us(region, known)[1] + sum(copies) - device_us(program)


def _slower_us(op: Op, region: Region, known: OpEffects, number: int) -> float:
    """What eager takes longer to copy in another order, or to another dtype, than moving the bytes takes."""
    result, operands = known.values[region.whole + number], [known.values[region.value(r.index)] for r in refs(op.args)]
    if known.launches[number] != 1 or _COPIES.isdisjoint(op_name(op).split(".")[-2:]) or not operands:
        return 0.0
    given = operands[0]
    if not isinstance(result, TensorLayout) or not isinstance(given, TensorLayout):
        return 0.0
    in_order = given.stride in (result.stride, contiguous_stride(given.shape))
    narrows = given.dtype == "float32" and dtype_of(result.dtype).itemsize == 2
    if in_order and (given.dtype == result.dtype or narrows):
        return 0.0
    moved = bytes_of(known, (region.whole + number,)) + _bytes(given)
    return max(0.0, math.prod(result.shape) / COPIED - moved / BANDWIDTH)


def device_us(program: Program) -> float:
    """The least time that the program's kernels take: that of moving their bytes, or of waiting for them."""
    return sum(_kernel_us(program, n) for n in range(len(program.launches)))


def copying_us(known: OpEffects, copied: Mapping[int, int]) -> tuple[float, float]:
    """What eager takes on the host and on the device to copy values, each so many times."""
    moved = sum(2 * count * bytes_of(known, (value,)) for value, count in copied.items())
    return EAGER_LAUNCH * sum(copied.values()), STEP * sum(copied.values()) + moved / BANDWIDTH


def most_gain(region: Region, known: OpEffects) -> float:
    """The time that one launch would save that moves no bytes and fills one tensor: no program saves more. What eager
    writes in place is not allocated."""
    in_place = any(known.writes[op] for op in region.ops)
    return sum(_eager_us(region, known)) - WRAPPER - KERNEL - (0.0 if in_place else ALLOCATION)


def graph_us(sketch: Sketch) -> float:
    """The least time that a region's kernels take in a CUDA graph."""
    program = sketch.program(LaunchLimits())
    times = (_kernel_us(program, n) * (AGAIN if body.sweeps_again else 1.0) for n, body in enumerate(sketch.bodies))
    return STEP * len(sketch.bodies) + sum(times)


def _host_us(program: Program) -> float:
    return WRAPPER + KERNEL * len(program.launches) + ALLOCATION * len(program.allocations)


def _eager_us(region: Region, known: OpEffects, surely: bool = False) -> tuple[float, float]:
    """What eager takes on the host and on the device; `surely`, if what it adds does not let it wait."""
    host = device = 0.0
    for number, op in zip(region.ops, region.graph.ops, strict=True):
        if known.launches[number] == 0:
            host += EAGER_VIEW
            continue
        operands = {region.value(ref.index) for ref in refs((op.args, op.kwargs))}
        moved = bytes_of(known, (*operands, region.whole + number))
        if not _TAKES_PLACES.isdisjoint(op_name(op).split(".")[-2:]):
            moved = _taken_bytes(known, operands, region.whole + number)
        launch = EAGER_SLOW.get(op_name(op), EAGER_LAUNCH)
        host += launch * known.launches[number]
        waited = 0.0 if surely else max(map(_adding_us, known.additions[number]), default=0.0)
        device += max(moved / BANDWIDTH, TURN * known.turns[number], waited)
    return host, device


def _adding_us(addition: Addition) -> float:
    """What eager's blocks wait for what they add, each in its turns along a row: as kernels of a pass do that add in
    the same order. 0 where the order is not known, as several blocks share a row, where it is that of places, each
    of which gets few, and of sums up to each element, whose loads wait for nothing."""
    order = order_of(addition)
    if order is None or addition.op in ("index_put", "cumsum"):
        return 0.0
    rows = math.prod(addition.shape) // order.length
    warps = rows * -(-order.width * order.height * order.idle // WARP)
    return WAIT * -(-order.length // order.step) * math.ceil(warps / (PROCESSORS * RESIDENT))


def _kernel_us(program: Program, number: int) -> float:
    launch = program.launches[number]
    sizes = {a.name: (math.prod(a.shape), a.dtype.itemsize) for a in program.allocations}
    for n, (dtype, shape, stride) in enumerate(program.key):
        sizes[f"in_{n}"] = _elements(shape, stride), dtype.itemsize
    used = ((*sizes[name], touched) for name, touched in zip(launch.arguments, launch.touched, strict=True))
    moved = sum(min(elements, touched) * size for elements, size, touched in used)
    rounds = math.ceil(launch.kernel.programs * launch.kernel.tuning.warps / (PROCESSORS * RESIDENT))
    waits = WAIT * launch.kernel.waits * rounds
    return max(waits, moved / (BANDWIDTH * min(1.0, launch.kernel.programs / PROCESSORS)))


def bytes_of(known: OpEffects, numbers: Iterable[int]) -> int:
    """The bytes of the values of these numbers."""
    return sum(_bytes(known.values[number]) for number in numbers)


def _taken_bytes(known: OpEffects, operands: Iterable[int], result: int) -> int:
    """The bytes of a result, and of the operands that it is taken from: no more elements of each than it has."""
    made = known.values[result]
    if not isinstance(made, TensorLayout):
        return bytes_of(known, (*operands, result))
    own, count = _bytes(made), _elements(made.shape, made.stride)
    given = (known.values[n] for n in operands if isinstance(known.values[n], TensorLayout))
    return own + sum(min(_elements(g.shape, g.stride), count) * dtype_of(g.dtype).itemsize for g in given)


def _bytes(value: object) -> int:
    if isinstance(value, tuple):
        return sum(map(_bytes, value))
    return (
        _elements(value.shape, value.stride) * dtype_of(value.dtype).itemsize if isinstance(value, TensorLayout) else 0
    )


def _elements(shape: Shape, stride: Shape) -> int:
    """Elements in memory: a dimension of stride zero is there once."""
    return math.prod(n for n, s in zip(shape, stride, strict=True) if s)
