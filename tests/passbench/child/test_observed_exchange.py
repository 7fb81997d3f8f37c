"""Calls of an observed exchange are made as those of a timed one: what is done around each, in which order."""

import gc
import weakref
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import fx
from torch.utils._python_dispatch import TorchDispatchMode

from passbench.checking import observed_calls
from passbench.child import staged_calls
from passbench.child.call_memory import CallMemory
from passbench.child.outputs import KeptOutputs
from passbench.child.staged_calls import StagedCalls
from passbench.child.worker import Worker
from passbench.contract import read_pass_dir
from passbench.inputs.distribution import Distribution
from passbench.ipc.messages import Batch, Code, Go, Load, Observe, Stage
from passbench.ipc.observation import Observation
from passbench.layers import Layers
from passbench.settings import Settings
from passbench.timing.exchanges import PairExchanges
from passbench.workers.fork_server_client import shared_launcher
from passbench.workers.worker_handle import WorkerHandle
from passbench.workers.worker_pair import SEALED, WorkerPair
from storage.graph.as_json import to_json
from tests.passbench.samples import PASSES, add_relu_sample

CPU = torch.device("cpu")
CALLS = 7
BATCH = Batch(CALLS, (), (), tuple(range(CALLS)), (), ())
FLUSHED = 1 << 20  # bytes in place of a GPU's many: nothing else here is as large


@pytest.fixture(scope="module", autouse=True)
def _frozen() -> Iterator[None]:
    """As a worker begins: an exchange looks for tensors among all objects that are not frozen: in a process of other
    tests these are millions, and a second of each test."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


class Seen(TorchDispatchMode):
    """Notes each flush of the cache, and each call of `replacement` with a number that it draws, how many results of
    earlier calls are held, whether fresh memory holds NaN, and how deep it could call itself."""

    def __init__(self):
        super().__init__()
        self.events, self._made = [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.zero_.default and args[0].nbytes >= FLUSHED:
            self.events.append("flush")
        return func(*args, **(kwargs or {}))

    def replacement(self):
        made = torch.ones(3)
        held = sum(one() is not None for one in self._made)
        self._made.append(weakref.ref(made))
        torch.ones(64)  # is given up, and is what lies in fresh memory that nobody fills
        fresh = bool(torch.empty(64).isnan().all())
        self.events.append((float(torch.rand(())), held, fresh, _frames_left(0)))
        return made


def _frames_left(deep):
    try:
        return _frames_left(deep + 1)
    except RecursionError:
        return deep


def events_of(commands, fill):
    """What a worker's calls see while it handles these commands, and its last answer."""
    seen, graph, worker = Seen(), fx.Graph(), Worker(CPU, None)
    node = graph.call_function(seen.replacement)
    graph.output(node)
    module = fx.GraphModule(torch.nn.Module(), graph)
    worker._call, worker._rewritten = module.forward, (module, (node,))
    with seen:
        for command in (Stage(BATCH, (), 5, fill=fill), *commands):
            reply = worker.handle(command)
            assert reply.code is Code.OK, reply.text
    return seen.events, reply


@pytest.mark.parametrize(("seed", "flush"), [(None, False), (None, True), (11, True)])
@pytest.mark.parametrize("fill", [False, True])
@pytest.mark.parametrize(("begin", "first"), [(1, 1), (1, 3), (1, 5), (0, 2)])
def test_an_observed_call_finds_what_a_timed_one_finds(seed, flush, fill, begin, first, monkeypatch):
    """They were neither flushed nor seeded, and their results were given up."""
    monkeypatch.setattr(staged_calls, "_FLUSH_BYTES", FLUSHED)
    go = Go(seed, flush)
    rehearsed = [replace(go, end=1)] if begin else []
    timed, _ = events_of([*rehearsed, replace(go, first=begin)], fill)
    observed, reply = events_of([*rehearsed, Observe(replace(go, first=begin), first, 2)], fill)
    assert observed == timed
    calls = [event for event in timed if event != "flush"]
    assert len(calls) == CALLS and [held for _, held, *_ in calls] == list(range(CALLS))
    assert timed.count("flush") == (CALLS if flush else 0)
    assert len({drawn for drawn, *_ in calls}) == (CALLS if seed is None else 1)
    assert {fresh for *_, fresh, _ in calls} == {fill}
    assert "aten.ones.default" in Observation.decode(reply.observed).operators


def test_only_what_a_rehearsed_call_allocates_is_of_before_the_exchange():
    """On a GPU free memory is filled then: in the midst of an exchange a pass would see that its own is lost."""
    memory = CallMemory(CPU, None)
    staged, go = StagedCalls(memory, KeptOutputs()), Go()
    staged.stage(Stage(BATCH, (), 5), of_a_pass=True)
    staged.go(replace(go, end=1), lambda: None)
    before = staged._before
    staged.go(replace(go, first=1, end=3), lambda: None, goes_on=True)
    assert staged._before is before
    staged.go(replace(go, end=1), lambda: None)
    assert staged._before is not before


class Noted(WorkerPair):
    """Notes what the candidate's worker is asked to do."""

    asked = ()

    def timed(self, worker, command, timeout):
        if worker is self.candidate:
            self.asked += (command,)
        return super().timed(worker, command, timeout)


@pytest.mark.parametrize("protocol", ["passnet", "paper"])
def test_a_worker_is_asked_for_an_observed_exchange_as_for_a_timed_one(protocol, tmp_path):
    one = add_relu_sample((3, 40)).variants[0]
    settings = Settings(seed=1, flush_l2=True, protocol=protocol).resolved(CPU)
    launcher = shared_launcher(interpret=True)
    workers = [WorkerHandle(CPU, settings, launcher, tmp_path / name / "box") for name in ("eager", "other")]
    try:
        pair = Noted(one, *workers, settings, 1, Layers())
        pair.load(pair.eager, Load(to_json(one.graph), "eager"))
        pair.describe()
        pair.load(pair.candidate, Load(to_json(one.graph), "pass", str(PASSES / "add_relu")))
        pair.call_once(pair.candidate)
        pair.asked = ()
        exchanges = PairExchanges(pair, lambda layout: None, lambda layout: None)
        layout = pair.draw(8, pair.outputs, Distribution.VARIED, sealed=SEALED, rehearsed=True)
        exchanges.timed(pair.candidate, layout, pair.as_timed(3), 3)
        stage, *timed, go, _ = pair.asked
        pair.asked = ()
        observed_calls.observe(pair, read_pass_dir(PASSES / "add_relu"), 8)
        staged, *before, observe = pair.asked
    finally:
        for worker in workers:
            worker.close()

    def seeded(command, seed):
        return replace(command, seed=None if command.seed is None else seed)

    assert isinstance(stage, Stage) and isinstance(staged, Stage) and isinstance(observe, Observe)
    assert [type(command) for command in before] == [type(command) for command in timed]
    assert seeded(before[0], 3) == timed[0] and seeded(observe.go, 3) == go
    assert go == Go(3 if protocol == "paper" else None, flush=True, first=1)
