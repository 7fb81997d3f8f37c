"""What replacing a region is expected to save, in microseconds a call: on the host, and on the device.

The host's figures are rounded from a fit to 262 variants of 59 samples of tests/benchmarks/h200_passbench and
h200_quickstart (one H200, torch 2.11, triton 3.6): end-to-end medians of eager, and of passes that launch through
Triton's JIT. At the sizes of this benchmark they decide. The device's are what moving the bytes takes; a kernel of few
programs cannot draw the whole bandwidth. All of this ranks regions and says which cannot pay; where there is a GPU,
measuring decides (`agent.tuned`).
"""

import math

from agent.facts import Facts, Layout
from agent.program import Program, Shape
from agent.regions import Region
from agent.tuning import PROCESSORS
from storage.graph import refs
from storage.records import dtype_of

EAGER_LAUNCH = 6.5
"""One library call that runs something on the device."""
EAGER_VIEW = 2.0
"""One op that runs nothing: a view, a tuple taken apart."""
KERNEL = 10.0
"""One kernel of a pass through Triton's JIT, with its share of the wrapper."""
CHEAP_KERNEL = 4.0
"""The same through `agent.launch`, by what it spares a CPU without a GPU; not yet measured on one."""
ALLOCATION = 8.0
"""One output or intermediate of a pass."""
BANDWIDTH = 4.0e6
"""Bytes a microsecond that all multiprocessors of an H200 move together; its data sheet has 4.8e6."""


def gain(region: Region, known: Facts, program: Program, kernel: float = KERNEL) -> float:
    """Time that a program in place of its region saves in one variant; negative where it costs.

    `kernel` is the host's time for one of the program's launches.
    """
    own = sum(kernel + _kernel_us(program, n) for n in range(len(program.launches)))
    return _eager_us(region, known) - own - ALLOCATION * len(program.allocations)


def most(region: Region, known: Facts, kernel: float = KERNEL) -> float:
    """The most that any program could save: one launch that moves no bytes, and nothing to allocate."""
    return _eager_us(region, known) - kernel


def _eager_us(region: Region, known: Facts) -> float:
    total = 0.0
    for number, op in zip(region.ops, region.graph.ops, strict=True):
        if known.launches[number] == 0:
            total += EAGER_VIEW
            continue
        operands = {region.value(ref.index) for ref in refs((op.args, op.kwargs))}
        moved = sum(_bytes(known.values[n]) for n in (*operands, region.whole + number))
        total += EAGER_LAUNCH * known.launches[number] + moved / BANDWIDTH
    return total


def _kernel_us(program: Program, number: int) -> float:
    launch = program.launches[number]
    sizes = {a.name: math.prod(a.shape) * a.dtype.itemsize for a in program.allocations}
    for n, (dtype, shape, stride) in enumerate(program.key):
        sizes[f"in_{n}"] = _elements(shape, stride) * dtype.itemsize
    moved = sum(sizes[name] for name in launch.arguments)
    return moved / (BANDWIDTH * min(1.0, launch.kernel.programs / PROCESSORS))


def _bytes(value: object) -> int:
    if isinstance(value, tuple):
        return sum(map(_bytes, value))
    return _elements(value.shape, value.stride) * dtype_of(value.dtype).itemsize if isinstance(value, Layout) else 0


def _elements(shape: Shape, stride: Shape) -> int:
    """Elements in memory: a dimension of stride zero is there once."""
    return math.prod(n for n, s in zip(shape, stride, strict=True) if s)
