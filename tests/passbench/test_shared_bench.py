"""Many compilers on a sample at once: verdicts are those of `Bench`, and processes keep what they have compiled."""

import json
import os
import threading
import time

import pytest
import torch
from torch._inductor import codecache

from passbench.child.captured_calls import CapturedCalls
from passbench.child.worker import Worker
from passbench.compilers import build, write_apart
from passbench.contract import NAMES_FILE, write_pass_dir
from passbench.ipc.messages import Batch, Code, Describe, Load, RunCalls
from passbench.launch import captured as recorded
from passbench.settings import Settings
from passbench.shared_bench import SharedBench, _in_order, _places
from passbench.timing.rounds import Captures
from passbench.workers.precompile import NO_TIME, shared_out
from storage.errors import PassNetError
from storage.graph.as_fx import to_module
from storage.graph.as_json import to_json
from tests.passbench.samples import PASSES, add_relu_sample, sample, spec, variant

ONCE = Settings(draws=2, calls=4, batch=3, warmup=2, repeats=0, double=False, seed=3)
JUDGED = ("add_relu", "wrong", "raises", "writes_input", "no_match")


@pytest.fixture(scope="module")
def bench():
    with SharedBench("cpu", ONCE) as one:
        yield one


def test_verdicts_are_those_of_one_compiler_after_another(bench):
    what = add_relu_sample((3, 40))
    named = {"eager": ("eager", None)} | {name: ("pass", PASSES / name) for name in JUDGED}
    missed = bench.compile_passes([(what, PASSES / name) for name in JUDGED], 2)
    assert len(missed) == 2 and len(bench._kept_passes) == 3  # what raises, and what does not match
    (together,) = bench.run_together(what, named)
    assert list(together) == list(named)
    assert {result.protocol for result in together.values()} == {"shared"}
    for name, (compiler, directory) in named.items():
        (alone,) = bench.run(what, compiler, directory)
        found = together[name]
        said = ("status", "error_code", "t_min", "matches", "library_ops")
        assert [getattr(found, x) for x in said] == [getattr(alone, x) for x in said], name
        assert found.reason.split("output 0[")[0] == alone.reason.split("output 0[")[0]
        assert [(t.clock, t.calls) for t in found.timings] == [(t.clock, t.calls) for t in alone.timings]
        assert set(found.layers) == set(alone.layers) - {"sealed_calls"}
    (timing,) = together["add_relu"].timings
    assert timing.calls == 2 * 2, "two rounds of three calls, of which the first is not timed"
    (first, *_), kept = bench._kept_passes.values(), len(bench._kept_passes)
    first.stop()
    bench._rest_again([first])
    assert len(bench._kept_passes) < kept and first not in bench._kept_passes.values(), "what has ended keeps nothing"


def test_equal_passes_of_two_samples_are_compiled_for_both(bench):
    other = sample(variant(lambda x, y: (x * y,), spec("x", 3, 40), spec("y", 3, 40)))  # no match
    jobs = [(what, PASSES / "add_relu") for what in (other, add_relu_sample((5, 8)))]
    assert bench.compile_passes(jobs, 1) == [what for what, _ in jobs]


def test_a_refused_pass_has_a_row_beside_the_others(bench, tmp_path):
    (tmp_path / "pass").mkdir()
    for number, found in enumerate(
        bench.run_together(
            add_relu_sample((3, 40), (8, 5)), {"eager": ("eager", None), "mine": ("pass", tmp_path / "pass")}
        )
    ):
        assert (found["eager"].status, found["mine"].status) == ("ok", "compile_error")
        assert found["mine"].variant_hash == found["eager"].variant_hash == f"v{number}"


def test_where_eager_fails_nobody_is_to_blame(bench):
    bad = sample(variant(lambda x, y: (x @ y,), spec("x", 2, 3), spec("y", 2, 3)))
    (found,) = bench.run_together(bad, {"eager": ("eager", None)})
    assert (found["eager"].status, found["eager"].error_code) == ("runtime_error", None)
    assert found["eager"].reason.startswith("eager failed")


def test_nothing_is_compiled_after_the_deadline(bench):
    what = add_relu_sample((3, 40)).variants
    missed = bench.compile_all(["inductor-direct", "inductor"], what, 1, time.monotonic())
    assert [(compiler, one.reason) for compiler, one in missed] == [("inductor-direct", NO_TIME), ("inductor", NO_TIME)]
    assert not bench.compiled("inductor", what[0])
    with pytest.raises(PassNetError, match="'eager' compiles nothing ahead"):
        bench.compile_all(["eager"], what, 1)


def test_no_compilers_need_no_process(bench):
    before = len(bench._workers())
    assert bench.compile_all([], add_relu_sample((3, 40)).variants, 2) == [] and len(bench._workers()) == before


def test_compilers_of_one_variant_are_in_different_processes(bench):
    what = add_relu_sample((3, 40)).variants[0]
    workers = [bench._worker("inductor", bench._baseline_launcher) for _ in range(2)]
    done = shared_out(workers, [("inductor-direct", what), ("inductor", what)], time.monotonic())
    assert {job.worker for job, _ in done} == set(workers)


def test_what_compiles_first_comes_before_what_finds_it_in_the_cache():
    assert list(_in_order(2, ["inductor", "inductor-direct"])) == [(0, 1), (1, 1), (0, 0), (1, 0)]


def test_passes_that_capture_are_kept_by_other_processes():
    captures = [False, False, True, True, False, False, False, False]
    places = _places(captures, 4)
    plain, capturing = ([p for p, one in zip(places, captures, strict=True) if one is kind] for kind in (False, True))
    assert (plain, capturing) == ([0, 1, 0, 1, 0, 1], [2, 3]), "two passes of a sample are in two processes"
    assert _places(captures, 3) == [0, 1, 2, 2, 0, 1, 0, 1]
    assert _places([True, False], 8) == [1, 0] and _places([False] * 3, 2) == [0, 1, 0]
    assert _places(captures, 1) == [0] * 8 and _places([], 4) == []


def test_a_worker_turns_to_what_it_has_kept():
    worker = Worker(torch.device("cpu"), None)
    graphs = [to_json(add_relu_sample((size, 40)).variants[0].graph) for size in (3, 4)]
    loads = [Load(graph, "inductor-direct", inputs=str(size), keep=True) for size, graph in enumerate(graphs)]
    calls = []
    for load in (*loads, *loads):
        assert worker.handle(load).code is Code.OK
        calls.append(worker._call)
    assert calls[:2] == calls[2:] and calls[0] is not calls[1]
    worker.handle(Load(graphs[0], "inductor-direct", inputs="0"))
    worker.handle(loads[0])
    assert worker._call is not calls[0], "a load without keep forgets the others"


def test_processes_of_one_number_do_not_share_temporary_files(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    write_apart()
    os.makedirs(tmp_path / "ab" / f".{os.getpid()}.{threading.get_ident()}.tmp")  # another one is at it
    codecache.write_atomic(str(tmp_path / "ab" / "file.py"), "text")
    assert (tmp_path / "ab" / "file.py").read_text() == "text"
    assert sorted(os.listdir(tmp_path)) == ["ab"]


def test_what_dynamo_compiled_runs_in_draws_and_in_timed_calls_alike():
    compiled = []

    def backend(module, inputs):
        compiled.append(module)
        return module.forward

    worker = Worker(torch.device("cpu"), None)
    worker._call = torch.compile(lambda: torch.ones(2) + 1, backend=backend)
    batch = Batch(1, (), (), (0,), (), ())
    outputs = worker.handle(Describe(batch, 0)).outputs
    for fill in (False, True, False):
        assert worker.handle(RunCalls(batch, outputs, 0, fill, False)).code is Code.OK
        assert len(compiled) == 1


def test_captures_that_only_fail_are_given_up():
    captures = Captures()
    for _ in range(2):
        assert not captures.hopeless("cudagraphs")
        captures.note("cudagraphs", captured=False)
    assert captures.hopeless("cudagraphs") and not captures.hopeless("inductor")
    captures.note("cudagraphs", captured=True)
    assert not captures.hopeless("cudagraphs")


# On a GPU

NEAR = 0.1
"""How far apart both ways of measuring may be here, on any host."""


@pytest.mark.gpu
@pytest.mark.parametrize(("clock", "shape"), [("e2e", (512, 1024)), ("device", (8192, 4096))])
def test_shared_rounds_and_whole_trials_agree(clock, shape):
    """By the device's clock a tensor is larger than the GPU's L2: where one fits, it depends on a process's addresses
    how much of eager's intermediate result is still there. End to end it is small: of large ones an exchange has three
    or four calls, in which the host's caches are still cold (an H100: 237 and 175 us a call of "inductor")."""
    what = add_relu_sample(shape)
    compilers = ("inductor-direct", "cudagraphs", "inductor")
    with SharedBench("cuda", Settings(double=False)) as bench:
        assert bench.compile_all(compilers, what.variants, 3) == []
        (together,) = bench.run_together(what, {name: (name, None) for name in ("eager", *compilers)})
        for name, found in together.items():
            (alone,) = bench.run(what, name)
            assert (found.status, found.t_min) == (alone.status, alone.t_min) == ("ok", -10), found.reason
            if clock == "e2e" or found.times.device_method == alone.times.device_method:
                assert found.speedup(clock) == pytest.approx(alone.speedup(clock), rel=NEAR), name
    assert together["inductor-direct"].speedup("device") > 1.5


@pytest.mark.gpu
def test_what_a_cuda_graph_holds_is_captured_within_another():
    module = to_module(add_relu_sample((64, 64)).variants[0].graph, torch.device("cuda"))
    call = build("cudagraphs", module, torch.device("cuda"))
    rows = [tuple(torch.randn(64, 64, device="cuda") for _ in range(2)) for _ in range(3)]
    expected = [call(*row) for row in rows]
    captured = CapturedCalls(call, rows)
    captured.replay()
    torch.cuda.synchronize()
    for found, (wanted,) in zip(captured.results, expected, strict=True):
        assert torch.equal(found[0], wanted)


CAPTURES = """
import torch
from passbench.launch import captured

def pattern(x, y):
    return torch.relu(x + y)

def replacement_args(x, y):
    return x, y

def steps(x, y):
    return torch.relu(x + y)

@torch.fx.wrap
def {name}(x, y):
    return captured(steps, x, y)

def replacement_func():
    return {name}
"""


@pytest.mark.gpu
def test_a_pass_shares_its_process_with_no_graphs_of_others(tmp_path):
    what = sample(variant(lambda x, y: (torch.relu(x + y),), spec("x", 3, 40), spec("y", 3, 40)))
    for name in ("one", "other"):
        files = {"rule.py": CAPTURES.format(name=name), NAMES_FILE: json.dumps(["rule"])}
        write_pass_dir(files, tmp_path / name)
    kept = lambda: len(recorded._recordings)  # noqa: E731
    worker = Worker(torch.device("cuda"), None, confine_kernels=False)  # or later tests could choose no options
    graph = to_json(what.variants[0].graph)
    row = [torch.ones(3, 40, device="cuda") for _ in range(2)]
    for name, again in (("one", False), ("one", True), ("other", False)):
        assert worker.handle(Load(graph, "pass", str(tmp_path / name), keep=True)).code is Code.OK
        assert kept() == again, "a second load of the same pass keeps what it has captured"
        worker._call(*row)
        assert kept() == 1
    recorded.forget()
