"""Passes and baselines through both processes, as rows."""

import math
import time
from dataclasses import replace

import pyarrow as pa
import pytest
import torch
import torch.nn.functional as F

from passbench.bench import Bench
from passbench.names import COMPILERS
from passbench.result import EAGER_FAILED, STATUSES
from passbench.score import score_rows
from passbench.settings import Settings
from storage.errors import PassNetError
from storage.schema import RESULTS, SCORES
from tests.passbench.attacks.attack_samples import linear_sigmoid
from tests.passbench.samples import BAD_PASSES, PASSES, add_relu_sample, sample, spec, variant

CPU_SETTINGS = Settings(draws=2, calls=4, batch=2, pairs=2, warmup=1, seed=1)
LAYERS = {"two_processes", "empty_environment", "resource_limits", "fresh_inputs", "poisoned_outputs", "parent_clock"}
LAYERS |= {"output_contract", "inputs_unchanged", "late_inputs", "timed_outputs_checked"}


@pytest.fixture(scope="module")
def bench():
    with Bench("cpu", CPU_SETTINGS) as one:
        yield one


def run(bench: Bench, name: str, what=None):
    results = list(bench.run(what or add_relu_sample((3, 40)), "pass", PASSES / name))
    rows = [r.to_row(run="r", author="a", attempt=1) for r in results]
    assert {r.status for r in results} <= set(STATUSES)
    table = pa.Table.from_pylist(rows, RESULTS)
    assert table.num_rows == len(rows) and all(row.keys() == set(RESULTS.names) for row in rows)
    return results


def test_a_good_pass_over_dtypes_shapes_and_strides(bench):
    half = add_relu_sample((3, 40), dtype="float16").variants
    strided = spec("x", 8, 4, stride=(1, 8))
    broadcast = variant(lambda x, y: (torch.relu(x + y),), strided, spec("y", 8, 4, stride=(1, 8)), name="strided")
    what = sample(*add_relu_sample((3, 40), (1000,)).variants, *half, broadcast)
    lines, threads, before = [], {}, torch.get_num_threads()

    def note(line: str) -> None:
        lines.append(line)
        threads[line] = torch.get_num_threads()  # of this process, which draws inputs

    torch.set_num_threads(2)
    results = list(bench.run(what, "pass", PASSES / "add_relu", progress=note))
    torch.set_num_threads(before)
    assert all(number == (2 if line.endswith(": ok") else 1) for line, number in threads.items()), threads
    for result in results:
        assert (result.status, result.error_code, result.matches) == ("ok", None, 1), result.reason
        assert result.t_min == -10 and result.max_abs_error == 0.0
        assert result.times_meaningful is False
        assert set(result.layers) >= LAYERS | {"static_policy", "evidence"}
        assert ("namespaces" in result.layers) != ("namespaces" in result.layers_missing)
        assert result.layers_missing["bandwidth"] == "no GPU" and "kernel" in result.surroundings
        assert result.errors.eager == result.errors.candidate < 1e-3
        (timing,) = result.timings
        assert (
            timing.clock == "e2e"
            and timing.calls == 4
            and timing.speedup_low <= timing.speedup <= timing.speedup_high
            and result.speedup("e2e") > 0
        )
    assert [r.variant_hash for r in results] == ["v0", "v1", "v0", "strided"]
    assert lines[-1] == "fusible-test 4/4: ok"
    row = results[0].to_row(run="r", author="a", attempt=1)
    assert {f["path"] for f in row["pass_files"]} == {"fuse_add_relu.py", "sorted_output_pass_rule_names.json"}
    scores = score_rows([r.to_row(run="r", author="a") for r in results], run="r", author="a")
    assert pa.Table.from_pylist(scores, SCORES).num_rows == 15


def test_layer_norm_is_close_but_not_equal(bench):
    def f(x, w, b):
        return (F.layer_norm(x, (48,), w, b, 1e-5),)

    inputs = (spec("x", 5, 48), spec("w", 48, role="parameter"), spec("b", 48, role="parameter"))
    (result,) = run(bench, "layer_norm", sample(variant(f, *inputs)))
    assert result.status == "ok"
    assert -10 < result.t_min <= -4 and 0 < result.max_abs_error < 1e-4


def test_more_timed_calls_can_only_loosen_the_level(bench, monkeypatch):
    def f(x, w, b):
        return (F.layer_norm(x, (48,), w, b, 1e-5),)

    what = sample(variant(f, spec("x", 5, 48), spec("w", 48, role="parameter"), spec("b", 48, role="parameter")))
    levels = []
    for pairs in (2, 30):
        monkeypatch.setattr(bench, "settings", replace(bench.settings, pairs=pairs, precision=0.0))
        (result,) = run(bench, "layer_norm", what)
        assert result.status == "ok"
        levels.append(result.t_min)
    assert levels[0] <= levels[1] <= levels[0] + 1


def test_an_inexact_pass_says_where_it_is_off(bench, tmp_path):
    files = {f.name: f.read_text() for f in (PASSES / "add_relu").iterdir() if f.is_file()}
    for name, text in files.items():
        (tmp_path / name).write_text(text.replace("tl.maximum(total, 0.0)", "tl.maximum(total * 1.001, 0.0)"))
    (result,) = bench.run(add_relu_sample((3, 40)), "pass", tmp_path)
    assert result.status == "ok" and -5 < result.t_min < 0
    assert result.reason.startswith(f"not right below t = {result.t_min}: output 0[") and "expected" in result.reason
    assert result.t_min_eager == -10 and "eager called twice" not in result.reason


def test_two_outputs_and_an_in_place_operator_and_a_shared_autotuned_helper(bench):
    def both(x, y):
        total = x + y
        return torch.relu(total) * 2, total

    (result,) = run(bench, "two_outputs", sample(variant(both, spec("x", 50), spec("y", 50))))
    assert (result.status, result.t_min) == ("ok", -10), result.reason

    def in_place(x, y):
        x += y
        return (x,)

    (result,) = run(bench, "in_place", sample(variant(in_place, spec("x", 50), spec("y", 50))))
    assert (result.status, result.t_min) == ("ok", -10), result.reason

    def activations(x, y):
        return torch.relu(x + y), torch.sigmoid(y + x)

    (result,) = run(bench, "shared_helper", sample(variant(activations, spec("x", 300), spec("y", 300))))
    assert (result.status, result.matches) == ("ok", 2), result.reason


@pytest.mark.parametrize("name", BAD_PASSES)
def test_a_bad_pass_leaves_a_record(bench, name):
    status, code, reason = BAD_PASSES[name]
    what = sample(variant(lambda x, y: (torch.relu(x + y),), spec("x", 3, 40), spec("y", 3, 40)))
    (result,) = run(bench, name, what)
    assert (result.status, result.error_code) == (status, code), result.reason
    assert reason in result.reason
    assert result.t_min is None and result.timings == ()


def test_a_result_says_which_operators_of_the_library_ran(bench):
    rows = {}
    for name in ("add_relu", "operators"):
        what = sample(variant(lambda x, y: (torch.relu(x + y),), spec("x", 3, 40), spec("y", 3, 40)))
        (result,) = run(bench, name, what)
        assert result.status == "ok", result.reason
        rows[name] = result.to_row(run="r", author="a")
    assert (rows["add_relu"]["library_ops"], rows["add_relu"]["kernels_only"]) == ([], True)
    assert rows["operators"]["library_ops"] == ["aten.add", "aten.gt", "aten.mul"]
    assert rows["operators"]["kernels_only"] is False
    assert rows["operators"]["capture_used"] is False


def test_a_result_says_whether_a_cuda_graph_was_asked_for(bench):
    (result,) = bench.run(linear_sigmoid(), "pass", PASSES.parent / "honest" / "captured_linear")
    assert result.status == "ok", result.reason
    assert result.to_row(run="r", author="a")["capture_used"] is True
    assert result.library_ops == ("aten.addmm",)
    assert replace(result, library_ops=()).kernels_only is False


def test_a_refused_pass_starts_no_process(bench):
    (result,) = run(bench, "reads_values")
    assert (result.status, result.error_code, result.layers) == ("rejected", None, ("static_policy",))
    assert result.reason.startswith("host_read: host_reads.py:")
    assert result.to_row(run="r", author="a")["findings"][0]["rule"] == "host_read"


def test_a_malformed_pass_is_a_compile_error(bench, tmp_path):
    results = list(bench.run(add_relu_sample((2,), (3,)), "pass", tmp_path))
    assert [(r.status, r.error_code) for r in results] == [("compile_error", 3)] * 2
    assert "is missing" in results[0].reason


def test_what_is_prepared_runs_in_the_worker_that_is_warm(bench, tmp_path):
    good, other = add_relu_sample((7, 40), (9, 40)), add_relu_sample((7, 41))
    passes = {"add_relu": (good, ["ok", "ok"]), "wrong": (other, ["wrong"]), "shared_helper": (other, ["ok"])}
    refused = [(other, PASSES / "reads_values"), (other, tmp_path)]  # for its source, and for being empty
    bench.prepare([*((what, PASSES / name) for name, (what, _) in passes.items()), *refused])
    warm = [side._process.pid for side in bench._prepared.values()]
    assert len(warm) == len(set(warm)) == len(passes) and None not in warm
    ran = []
    for name, (what, statuses) in passes.items():
        assert [r.status for r in bench.run(what, "pass", PASSES / name)] == statuses
        ran.append(bench._idle[-1]._process.pid)
    assert ran == warm and bench._prepared == {}


def test_after_a_hang_the_next_variant_has_a_fresh_worker(bench, monkeypatch):
    monkeypatch.setattr(bench, "settings", replace(bench.settings, first_call_timeout=1.5))
    other = variant(lambda x: (torch.tanh(x),), spec("x", 4), name="other")
    first, second = run(bench, "hangs", sample(*add_relu_sample((2, 3)).variants, other))
    assert (first.status, first.error_code, first.reason) == ("timeout", None, "no answer within 1.5 s")
    assert second.status == "no_match"


def test_eager_against_itself_with_every_kind_of_output_and_input(bench):
    def f(x, n, index, flag):
        y = x.reshape(n, -1)
        return y, y.size(1), (x[index], flag.logical_not()), {"sum": x.sum(), "dtype": None}

    inputs = (
        spec("x", 4, 6, dtype="float64"),
        spec("n", dtype="int", low=2.0, high=2.0),
        spec("index", 3, dtype="int64", low=0, high=3),
        spec("flag", 5, dtype="bool"),
    )
    (result,) = bench.run(sample(variant(f, *inputs)), "eager")
    assert (result.status, result.t_min, result.matches) == ("ok", -10, None), result.reason
    assert "static_policy" not in result.layers and result.pass_files == ()


def test_eager_is_run_by_fresh_processes_after_some_variants(bench, monkeypatch):
    monkeypatch.setattr("passbench.bench._VARIANTS_OF_A_PROCESS", 2)
    monkeypatch.setattr(bench, "_variants", 0)
    what = add_relu_sample((2, 3), (4, 3))
    pids = []
    for _ in range(2):
        assert [r.status for r in bench.run(what, "eager")] == ["ok", "ok"]
        pids.append((bench._eager._process.pid, bench._warm["eager"]._process.pid))
    assert not set(pids[0]) & set(pids[1])


def test_where_eager_fails_nothing_is_scored(bench):
    bad = variant(lambda x, y: (x @ y,), spec("x", 2, 3), spec("y", 2, 3), name="bad")
    huge = variant(lambda x: (x + 1,), spec("x", 1 << 40), name="huge")
    none = variant(lambda x: (x + 1,), spec("x", 3, low=math.nan, high=1.0), name="none")
    what = sample(bad, huge, none, *add_relu_sample((2,)).variants)
    results = list(bench.run(what, "eager"))
    assert [r.status for r in results] == ["runtime_error", "runtime_error", "runtime_error", "ok"]
    assert all(r.error_code is None and r.reason.startswith(EAGER_FAILED) for r in results[:3])
    assert "shared_bytes" in results[1].reason and "input x: no values lie in [nan, 1.0]" in results[2].reason
    bench.prepare([(what, PASSES / "add_relu")])  # leaves them to `run`
    assert [r.status for r in bench.run(what, "pass", PASSES / "add_relu")] == [r.status for r in results]
    rows = [r.to_row(run="r", author="a") for r in results]
    assert {s["n"] for s in score_rows(rows, run="r", author="a")} == {1}


def test_what_needs_a_gpu_says_so(bench):
    (result,) = bench.run(add_relu_sample((2,)), "cudagraphs")
    assert (result.status, result.error_code) == ("compile_error", 3)
    assert "needs an NVIDIA GPU" in result.reason


def test_what_is_not_compiled_ahead_is_told(bench):
    large = add_relu_sample((2**29,))
    ((compiler, missed),) = bench.precompile([("inductor", large)], 1)
    assert (compiler, missed.variant) == ("inductor", large.variants[0])
    assert "larger than PassBench's memory" in missed.reason
    late = bench.precompile([("inductor", large), ("inductor-max-autotune", large)], 2, deadline=time.monotonic())
    assert [(compiler, one.reason) for compiler, one in late] == [
        ("inductor-max-autotune", "no time was left"),
        ("inductor", "no time was left"),
    ]


def test_a_baseline_is_timed_in_the_worker_that_compiled_it(bench):
    what = add_relu_sample((7, 40), (9, 40))
    assert bench.precompile([("inductor-strict-direct", what)], 1) == []
    (worker,) = bench._compiled.values()
    pid, phases = worker._process.pid, []
    for result in bench.run(what, "inductor-strict-direct"):
        assert (result.status, result.t_min) == ("ok", -10), "what was compiled for one shape does not run with another"
        assert worker._process.pid == pid
        phases.append(result.phases)
    assert bench._compiled == {} and not worker._process.alive
    assert phases[0]["candidate RunCalls"] < phases[1]["candidate RunCalls"], "the second is compiled again"


def test_inductor_on_the_cpu(bench):
    (result,) = bench.run(add_relu_sample((16, 16)), "inductor")
    assert (result.status, result.t_min, result.times_meaningful) == ("ok", -10, False), result.reason


def test_random_operations_see_the_same_seed_on_both_sides(bench):
    def f(x):
        return (F.dropout(x, 0.5, True),)

    (result,) = bench.run(sample(variant(f, spec("x", 1000))), "eager")
    assert (result.status, result.t_min) == ("ok", -10), result.reason


def test_the_paper_protocol_is_recorded():
    with Bench("cpu", replace(CPU_SETTINGS, protocol="paper")) as one:
        (result,) = one.run(add_relu_sample((2,)), "eager")
    assert (result.status, result.protocol) == ("ok", "paper")


def test_unknown_compilers_and_devices():
    with Bench("cpu", CPU_SETTINGS) as one:
        with pytest.raises(PassNetError, match="unknown"):
            next(one.run(add_relu_sample((2,)), "gcc"))
        with pytest.raises(PassNetError, match="needs a pass directory"):
            next(one.run(add_relu_sample((2,)), "pass"))
    with pytest.raises(PassNetError, match="not supported"):
        Bench("meta")
    if not torch.cuda.is_available():
        with pytest.raises(PassNetError, match="no NVIDIA GPU"):
            Bench("cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("compiler", COMPILERS)
def test_every_compiler_on_a_gpu(compiler):
    with Bench("cuda", Settings(calls=20, warmup=5)) as one:
        results = list(one.run(add_relu_sample((3, 40), (64, 256)), compiler, PASSES / "add_relu"))
    for result in results:
        assert (result.status, result.t_min) == ("ok", -10), result.reason
        assert result.times_meaningful and {t.clock for t in result.timings} == {"e2e", "device"}
        assert result.speedup("e2e") > 0 and result.speedup("device") > 0
