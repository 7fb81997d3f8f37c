"""Calls of recorded passes in this process, and what they take."""

import gc
import math
import statistics
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import torch
from torch import fx

from benchmarks.passbench.recorded_passes import passes
from passbench.contract import load_rules, read_pass_dir, write_pass_dir
from passbench.inputs.draw import make_inputs
from passbench.matching.rewrite import apply_pass
from storage.graph.as_fx import to_module
from storage.records import Sample, Variant
from storage.versions.samples import load_samples
from storage.versions.version import Version

CAPTURED = "captured("
"""In the text of a pass that has a function captured in a CUDA graph."""
_ROWS = {"cuda": 16, "cpu": 2}
_CALLS = {"cuda": 100, "cpu": 3}
_ROUNDS = {"cuda": 6, "cpu": 2}


class KeptPass(NamedTuple):
    """A pass and its sample, which has the variant alone that the pass was measured on."""

    name: str
    directory: Path
    sample: Sample

    @property
    def variant(self) -> Variant:
        """The sample's variant."""
        return self.sample.variants[0]

    @property
    def elements(self) -> int:
        """Of all inputs."""
        return sum(math.prod(given.shape) for given in self.variant.inputs)

    @property
    def captures(self) -> bool:
        """Whether it has a function captured in a CUDA graph."""
        return any(CAPTURED in text for text in read_pass_dir(self.directory).modules.values())


@dataclass(frozen=True)
class LoadedCall:
    """`call`, with the inputs of some calls. Of a pass also the rewritten graph, and the nodes that it put there."""

    name: str
    call: Callable
    rows: list[tuple]
    module: fx.GraphModule | None = None
    inserted: Collection[fx.Node] = ()


class Took(NamedTuple):
    """Microseconds of a call until it returns, and from then on until the device is done: medians."""

    host: float
    rest: float


def written_to(out: Path, rows: Sequence[dict], versions: Iterable[Path], most: int) -> list[KeptPass]:
    """Write the passes of recorded rows, at most so many, as directories below `out`, the categories in turn. Those
    are left out whose variant no version has."""
    variants = {row["sample"]: row["variant_hash"] for row in rows}
    found: dict[str, KeptPass] = {}
    samples = _samples(versions, variants)
    for name, files in passes(list(rows)).items():
        there = [one for one in samples[name].variants if one.variant_hash == variants[name]] if name in samples else ()
        if there and len(found) < most:
            write_pass_dir(files, out / name)
            found[name] = KeptPass(name, out / name, replace(samples[name], variants=(there[0],)))
    return list(found.values())


def repeating_eager(out: Path, kept: KeptPass) -> KeptPass:
    """A pass that makes eager's own calls for the same variant. Raises ValueError where a pass may not make them.

    Another process writes it. What writes it imports TorchInductor, which asks how many GPUs there are, and torch
    refuses CUDA to all later forks of a process that has asked.
    """
    name = f"eager-as-{kept.name}"
    writing = get_context("spawn").Process(target=_write_repeating, args=(kept.sample, out / name))
    writing.start()
    writing.join()
    if writing.exitcode == _REFUSED:
        raise ValueError(f"no pass may repeat what eager does in {kept.name}")
    if writing.exitcode:
        raise RuntimeError(f"the process that writes eager's calls for {kept.name} ended with {writing.exitcode}")
    return kept._replace(name=name, directory=out / name)


_REFUSED = 3


def _write_repeating(sample: Sample, directory: Path) -> None:
    from benchmarks.passbench import eager_as_pass  # imports TorchInductor

    sys.exit(0 if eager_as_pass.write(sample, directory) else _REFUSED)


def _samples(versions: Iterable[Path], names: Collection[str]) -> Mapping[str, Sample]:
    found: dict[str, Sample] = {}
    for version in map(Version.open, versions):
        for split in ("eval", "train"):
            some = [n for n in version.table("samples", split)["sample"].to_pylist() if n in names and n not in found]
            found |= {sample.sample: sample for sample in load_samples(version, split, names=some)}
    return found


def load(kept: KeptPass, device: torch.device, rows: int | None = None) -> LoadedCall:
    """Rebuild the variant's graph, apply the pass, and call it twice. `rows`: the inputs of so many calls. Raises what
    the pass raises."""
    module = to_module(kept.variant.graph, device)
    applied = apply_pass(module.graph, load_rules(kept.directory, read_pass_dir(kept.directory).names))
    module.recompile()
    drawn = _drawn(kept, device, rows)
    loaded = LoadedCall(kept.name, module.forward, drawn, module, applied.inserted)
    for _ in range(2):
        loaded.call(*drawn[0])
    synchronize(device)
    return loaded


def eager(kept: KeptPass, device: torch.device) -> LoadedCall:
    """The variant without its pass."""
    call = to_module(kept.variant.graph, device).forward
    return LoadedCall(f"{kept.name} by eager", call, _drawn(kept, device))


def _drawn(kept: KeptPass, device: torch.device, rows: int | None = None) -> list[tuple]:
    numbers = range(rows or _ROWS[device.type])
    return [tuple(make_inputs(kept.variant.inputs, 0, number, device)) for number in numbers]


def synchronize(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize()


@contextmanager
def _without_collections():
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def single_calls(loaded: LoadedCall, calls: int, device: torch.device) -> list[Took]:
    """What each of so many calls takes. All results are kept until the last call, as an exchange keeps them."""
    results, times, clock = [], [], time.perf_counter_ns
    rows = [loaded.rows[number % len(loaded.rows)] for number in range(calls)]
    call, wait = loaded.call, torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    with _without_collections():
        for row in rows:
            begin = clock()
            results.append(call(*row))
            returned = clock()
            wait()
            times.append((begin, returned, clock()))
    return [Took((b - a) / 1000, (c - b) / 1000) for a, b, c in times]


def median_of(times: Sequence[Took]) -> Took:
    """The median of either part."""
    return Took(*(statistics.median(part) for part in zip(*times, strict=True)))


def measured(calls: Sequence[LoadedCall], device: torch.device) -> list[Took]:
    """What a call of each takes, in rounds of all. The first calls of a round do not count: each finds the caches as
    another one has left them."""
    found: list[list[Took]] = [[] for _ in calls]
    count = _CALLS[device.type]
    for _ in range(_ROUNDS[device.type]):
        for times, one in zip(found, calls, strict=True):
            times += single_calls(one, count, device)[count // 4 :]
    return [median_of(times) for times in found]
