"""Convolutions of a version's samples in contiguous and in channels-last memory: whether the bits are the same, and
what the GPU takes. Needs a GPU; says what a pass with eager's bits may gain by calling them in channels-last memory.

    python3 -m benchmarks.agent.conv_layouts VERSION_DIR --names FILE --budget SECONDS --out FILE.csv

A row for each convolution, or backward of one, with four dimensions: the shares of results that differ over `DRAWS`
draws, and microseconds of a call in a CUDA graph. Conversions between the layouts are in no time.
"""

import argparse
import csv
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from agent.distill.eager.op_effects import OpEffectsError, TensorLayout, find_effects
from agent.run.choose import Choice, chosen
from passbench.child.captured_calls import CapturedCalls, EmptyReplay
from storage.graph.record import Op, Ref, map_refs
from storage.records import Variant, dtype_of
from storage.schema import CATEGORIES
from storage.versions.version import Version

TARGETS = ("torch.conv2d", "torch.nn.functional.conv2d", "torch.ops.aten.convolution_backward.default")
COLUMNS = ("sample", "op", "target", "dtype", "shapes", "groups", "differing", "us", "channels_last_us")
DRAWS, CALLS, REPLAYS = 3, 16, 8


def convolutions(variant: Variant) -> Iterator[tuple[int, Op, list[TensorLayout]]]:
    """Number, op, and the layouts of the tensors of each convolution with four dimensions."""
    known = find_effects(variant.graph, variant.inputs)
    for number, op in enumerate(variant.graph.ops):
        found = [known.values[x.index] for x in op.args if isinstance(x, Ref)]
        if op.target in TARGETS and all(isinstance(x, TensorLayout) and len(x.shape) in (1, 4) for x in found):
            yield number, op, found


def compared(op: Op, layouts: list[TensorLayout], device: torch.device) -> dict[str, Any]:
    """The columns behind `target` but for the shapes. Raises what torch raises."""
    call = _function(op)
    differing = []
    for seed in range(DRAWS):
        plain = _drawn(layouts, device, seed)
        other = [_channels_last(x) for x in plain]
        pairs = zip(_tensors(call(plain)), _tensors(call(other)), strict=True)
        differing += [(a != b).float().mean().item() for a, b in pairs]
    us = {"us": _us(call, plain, device), "channels_last_us": _us(call, other, device)}
    return {"differing": max(differing)} | us


def _function(op: Op) -> Callable[[list[torch.Tensor]], Any]:
    function = torch.nn.functional.conv2d if "conv2d" in op.target else torch.ops.aten.convolution_backward.default

    def call(tensors: list[torch.Tensor]) -> Any:
        left = iter(tensors)
        given = map_refs(op.args, lambda ref: _Given(next(left)))
        return function(*(x.tensor if isinstance(x, _Given) else x for x in given), **op.kwargs)

    return call


class _Given:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def _drawn(layouts: list[TensorLayout], device: torch.device, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator(device).manual_seed(seed)
    return [torch.randn(x.shape, generator=generator, device=device).to(dtype_of(x.dtype)) for x in layouts]


def _channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


def _tensors(result: Any) -> list[torch.Tensor]:
    found = result if isinstance(result, tuple) else (result,)
    return [x for x in found if isinstance(x, torch.Tensor)]


def _us(call: Callable, tensors: list[torch.Tensor], device: torch.device) -> float:
    graph, empty = CapturedCalls(lambda *given: call(list(given)), [tuple(tensors)] * CALLS), EmptyReplay(device)
    times = []
    for _ in range(REPLAYS):
        took = []
        for one in (graph, empty):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            one.replay()
            end.record()
            torch.cuda.synchronize()
            took.append(begin.elapsed_time(end))
        times.append(1000.0 * (took[0] - took[1]) / CALLS)
    return round(sorted(times)[REPLAYS // 4], 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version", type=Path, help="directory of a dataset version")
    parser.add_argument("--names", type=Path, required=True, help="a file with the names of the samples to take")
    parser.add_argument("--budget", type=float, default=600.0, metavar="SECONDS")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    end, device, known = time.monotonic() + options.budget, torch.device("cuda:0"), {}
    names = frozenset(options.names.read_text("utf-8").split())
    choice = Choice(("eval", "train"), CATEGORIES, names, one_a_dtype=True, at_most=1, mixed=True)
    with options.out.open("w", encoding="utf-8", newline="") as file, torch.no_grad():
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for sample in chosen(Version.open(options.version), choice):
            try:
                found = list(convolutions(sample.variants[0]))
            except OpEffectsError:
                continue
            for number, op, layouts in found:
                if time.monotonic() > end:
                    return
                shapes = " ".join("x".join(map(str, x.shape)) for x in layouts)
                groups = next((x for x in reversed(op.args) if type(x) is int), 1)
                key = op.target, layouts[0].dtype, shapes, repr(op.args[len(layouts) :])
                if key not in known:
                    known[key] = compared(op, layouts, device)
                row = {"sample": sample.sample, "op": number, "target": op.target, "dtype": layouts[0].dtype}
                writer.writerow(row | {"shapes": shapes, "groups": groups} | known[key])
                file.flush()


if __name__ == "__main__":
    main()
