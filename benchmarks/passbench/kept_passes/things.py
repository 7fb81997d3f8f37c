"""What a process of shared rounds has done, thing by thing, before a pass is timed in it."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from benchmarks.passbench.kept_passes.helpers import Helper
from benchmarks.passbench.kept_passes.loaded_calls import KeptPass, LoadedCall, load, synchronize
from passbench.child.captured_calls import CapturedCalls
from passbench.child.filled_memory import filled_memory
from passbench.child.observing.depth import DepthWatch
from passbench.child.observing.observe import observe
from passbench.child.observing.operators import OperatorWatch
from passbench.child.profiled import profiled
from passbench.launch import Launch, LaunchPlan, branch, captured

_MANY = 12
"""A process of shared rounds keeps about so many passes."""
_GRAPH_CALLS = 64
_RECORDINGS = 16
_MEMORY = 4 << 30  # bytes
_PAUSE = 0.3  # seconds


@dataclass
class Scene:
    """The process of one thing: the calls that are timed in it, further passes, and other processes that were forked
    from the same state. `kept` lives as long as the process."""

    device: torch.device
    measured: list[LoadedCall]
    others: Sequence[KeptPass]
    helpers: Sequence[Helper]
    kept: list[object] = field(default_factory=list)

    @property
    def many(self) -> range:
        """How often a thing is done many times: less often on a CPU, where it is tried alone."""
        return range(_MANY if self.device.type == "cuda" else 2)

    @property
    def passes(self) -> list[LoadedCall]:
        """Of the calls that are timed, those of passes."""
        return [one for one in self.measured if one.module is not None]


@dataclass(frozen=True)
class Thing:
    """Something that a process does between two measurements. `helpers`: so many processes beside it."""

    name: str
    do: Callable[[Scene], object]
    needs_gpu: bool = False
    helpers: int = 0


def _load(scene: Scene, passes: Sequence[KeptPass]) -> None:
    scene.kept += [load(one, scene.device, rows=1) for one in passes]


def _plain(scene: Scene) -> list[KeptPass]:
    return [one for one in scene.others if not one.captures]


def _capturing(scene: Scene) -> list[KeptPass]:
    return [one for one in scene.others if one.captures]


def _observe(scene: Scene, times: range) -> None:
    for _ in times:
        for one in scene.passes:
            observe(one.module, one.inserted, one.rows, [])


def _profile(scene: Scene) -> None:
    for _ in scene.many:
        with profiled():
            for one in scene.passes:
                one.call(*one.rows[0])
            synchronize(scene.device)


def _trace(scene: Scene) -> None:
    for _ in scene.many:
        with DepthWatch().inside():
            for one in scene.passes:
                one.call(*one.rows[0])


def _watch_operators(scene: Scene) -> None:
    for _ in scene.many:
        with OperatorWatch().inside():
            for one in scene.passes:
                one.call(*one.rows[0])


def _set_attributes(scene: Scene) -> None:
    """What is set is what was there: the classes are other ones to the interpreter's caches all the same."""
    for _ in scene.many:
        for owner, name in ((Launch, "__call__"), (LaunchPlan, "__call__"), (torch.Tensor, "__repr__")):
            setattr(owner, name, getattr(owner, name))
        for one in scene.passes:
            one.call(*one.rows[0])


def _fill_memory(scene: Scene) -> None:
    with filled_memory():
        for one in scene.passes:
            one.call(*one.rows[0])


def _capture_calls(scene: Scene, times: range) -> None:
    for _ in times:
        for one in scene.passes:
            graph = CapturedCalls(one.call, [one.rows[n % len(one.rows)] for n in range(_GRAPH_CALLS)])
            graph.replay()
            graph.poison()
            synchronize(scene.device)


def _small(x: torch.Tensor) -> torch.Tensor:
    return (x + 1).relu()


def _side_by_side(x: torch.Tensor) -> torch.Tensor:
    parts = [branch(number, _small, x) for number in range(4)]
    return parts[0] + parts[1] + parts[2] + parts[3]


def _record(scene: Scene, function: Callable, count: int) -> None:
    for number in range(count):
        captured(function, torch.zeros(64 * (number + 1), device=scene.device))
    synchronize(scene.device)


def _record_and_forget(scene: Scene) -> None:
    _record(scene, _small, _RECORDINGS)
    captured.forget()


def _use_streams(scene: Scene, count: int) -> None:
    scene.kept += (streams := [torch.cuda.Stream() for _ in range(count)])
    for stream in streams:
        with torch.cuda.stream(stream):
            _small(torch.zeros(64, device=scene.device))
    synchronize(scene.device)


def _use_libraries(scene: Scene) -> None:
    x = torch.randn(8, 16, 32, 32, device=scene.device)
    torch.nn.functional.conv2d(x, torch.randn(16, 16, 3, 3, device=scene.device))
    torch.nn.functional.scaled_dot_product_attention(x, x, x)
    torch.linalg.inv(torch.randn(32, 32, device=scene.device))
    x.flatten(1) @ x.flatten(1).T
    synchronize(scene.device)


def _reserve(scene: Scene) -> None:
    whole = [torch.empty(_MEMORY // 64, dtype=torch.uint8, device=scene.device) for _ in range(64)]
    del whole
    if scene.device.type == "cuda":
        torch.cuda.empty_cache()


def _pause(scene: Scene) -> None:
    """As `WorkerHandle.pause` and `resume`, by a shell."""
    begin = time.monotonic()
    waker = subprocess.Popen(["sh", "-c", f"sleep {_PAUSE}; kill -CONT {os.getpid()}"])
    os.kill(os.getpid(), signal.SIGSTOP)
    waker.wait()
    if time.monotonic() - begin < _PAUSE:
        raise RuntimeError("the process was not paused")


def _beside_others(scene: Scene) -> None:
    for helper in scene.helpers:
        helper.work(scene.device)


def _as_kept(scene: Scene, passes: Sequence[KeptPass]) -> None:
    """What shared rounds do with each pass before the next one comes: its call, observed and captured."""
    for one in [load(kept, scene.device, rows=4) for kept in passes]:
        observe(one.module, one.inserted, one.rows, [])
        if scene.device.type == "cuda":
            CapturedCalls(one.call, one.rows).replay()
        synchronize(scene.device)
        scene.kept.append(one)
    _pause(scene)


THINGS: tuple[Thing, ...] = (
    Thing("nothing", lambda scene: None),
    Thing("passes as a process of shared rounds keeps them", lambda scene: _as_kept(scene, scene.others)),
    Thing("the same, those alone that capture nothing", lambda scene: _as_kept(scene, _plain(scene))),
    Thing("other passes loaded and called, none captures", lambda scene: _load(scene, _plain(scene))),
    Thing("other passes loaded and called, all capture", lambda scene: _load(scene, _capturing(scene))),
    Thing("one other pass loaded and called", lambda scene: _load(scene, _plain(scene)[:1])),
    Thing("one function captured, kept", lambda scene: _record(scene, _small, 1), needs_gpu=True),
    Thing(f"{_RECORDINGS} captured, kept", lambda scene: _record(scene, _small, _RECORDINGS), needs_gpu=True),
    Thing(f"{_RECORDINGS} captured, given up", _record_and_forget, needs_gpu=True),
    Thing("one captured with branches, kept", lambda scene: _record(scene, _side_by_side, 1), needs_gpu=True),
    Thing("one more stream used", lambda scene: _use_streams(scene, 1), needs_gpu=True),
    Thing("32 more streams used", lambda scene: _use_streams(scene, 32), needs_gpu=True),
    Thing("calls captured in a graph once", lambda scene: _capture_calls(scene, range(1)), needs_gpu=True),
    Thing(f"calls captured in a graph {_MANY} times", lambda scene: _capture_calls(scene, scene.many), needs_gpu=True),
    Thing("observed once", lambda scene: _observe(scene, range(1))),
    Thing(f"observed {_MANY} times", lambda scene: _observe(scene, scene.many)),
    Thing(f"profiled {_MANY} times", _profile, needs_gpu=True),
    Thing(f"traced by sys.settrace {_MANY} times", _trace),
    Thing(f"operators watched {_MANY} times", _watch_operators),
    Thing(f"class attributes set {_MANY} times", _set_attributes),
    Thing("allocations filled for a call", _fill_memory),
    Thing("libraries for products and convolutions used", _use_libraries),
    Thing("4 GiB reserved and freed", _reserve, needs_gpu=True),
    Thing("paused and resumed", _pause),
    Thing("seven others have used the GPU and wait", _beside_others, helpers=7),
    Thing("another process was at work on this core", _beside_others, helpers=1),
)
