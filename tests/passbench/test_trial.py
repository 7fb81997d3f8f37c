"""Who is to blame where eager fails beside a pass."""

import pytest
import torch

from passbench.bench_results import _with_eager
from passbench.checking.correctness import Correctness
from passbench.checking.tolerance import Comparison
from passbench.contract import read_pass_dir
from passbench.ipc.messages import Load
from passbench.layers import Layers
from passbench.result import EAGER_FAILED, VariantFailure
from passbench.settings import Settings
from passbench.trial import TrialCandidate, TrialWorkers, _blamed, _eager_alone, run_trial
from passbench.workers.fork_server_client import shared_launcher
from passbench.workers.worker_handle import WorkerHandle
from passbench.workers.worker_pair import WorkerPair
from storage.graph.as_json import to_json
from storage.records import Variant
from tests.passbench.samples import PASSES, add_relu_sample, spec, variant

CPU = torch.device("cpu")
DIED = VariantFailure("runtime_error", f"{EAGER_FAILED}: the worker process ended", eager=True)
PASS = TrialCandidate("pass", str(PASSES / "add_relu"), read_pass_dir(PASSES / "add_relu"))


@pytest.fixture
def pair_of(tmp_path):
    launcher, workers = shared_launcher(interpret=True), []

    def make(one: Variant) -> WorkerPair:
        settings = Settings(seed=1).resolved(CPU)
        workers.extend(WorkerHandle(CPU, settings, launcher, tmp_path / name / "box") for name in ("one", "two"))
        return WorkerPair(one, *workers[-2:], settings, 1, Layers())

    yield make
    for worker in workers:
        worker.close()


def test_where_eager_runs_without_the_pass_the_pass_is_to_blame(pair_of):
    pair = pair_of(add_relu_sample((3, 40)).variants[0])
    blamed = _blamed(DIED, pair, PASS, lambda: _eager_alone(pair))
    assert not blamed.eager and (blamed.status, blamed.error_code) == ("runtime_error", 2)
    assert blamed.reason == f"this does not happen without the pass: {DIED.reason}"


def test_where_eager_fails_by_itself_it_is_eagers_failure(pair_of):
    bad = variant(lambda x, y: (x @ y,), spec("x", 2, 3), spec("y", 2, 3))
    pair = pair_of(bad)
    assert _blamed(DIED, pair, PASS, lambda: _eager_alone(pair)) is DIED


def test_a_compiler_and_a_failure_of_the_pass_are_left_as_they_are(pair_of):
    pair, own = pair_of(add_relu_sample((3, 40)).variants[0]), VariantFailure("wrong", "differs")
    assert _blamed(DIED, pair, TrialCandidate("inductor"), lambda: None) is DIED
    assert _blamed(own, pair, PASS, lambda: None) is own


@pytest.mark.parametrize(("places", "to_blame"), [(1, True), (2, False)])
def test_who_is_to_blame_where_passbench_has_no_memory_left(pair_of, places, to_blame):
    """A pass that fills the GPU within its share must not turn its variant into one that eager fails on."""
    pair, stages = pair_of(add_relu_sample((3, 40)).variants[0]), []

    def report(stage: str) -> None:
        stages.append(stage)
        if stage == "timing" and stages.count(stage) <= places:
            raise torch.OutOfMemoryError("CUDA out of memory")

    outcome = run_trial(pair.variant, PASS, TrialWorkers(pair.eager, pair.candidate), pair.settings, 1, report)
    assert "eager in the pass's place" in stages
    assert (outcome.status, outcome.reason.startswith(EAGER_FAILED)) == ("runtime_error", not to_blame)
    assert outcome.reason.startswith("this does not happen without the pass") == to_blame


def test_eager_that_reads_what_lay_in_its_memory_differs_from_itself(pair_of):
    def f(x):
        old = [torch.empty_like(x) for _ in range(16)]  # of so many some lie where those of the call before lay
        out = x
        for each in old:
            out = out + each
        for each in old:
            each.copy_(x)  # the next call finds it
        return (out,)

    same, other = (_eager_with_itself(pair_of(v)) for v in (add_relu_sample((3, 40)).variants[0], variant(f, X)))
    assert same.t_min == -10 and _with_eager("differs", same) == "differs"
    assert other.t_min is None or other.t_min > -5
    assert _with_eager("differs", other).startswith("differs; eager called twice agrees with itself ")


X = spec("x", 64, 64)


def _eager_with_itself(pair: WorkerPair) -> Comparison:
    pair.load(pair.eager, Load(to_json(pair.variant.graph), "eager"))
    pair.describe()
    return Correctness(pair).of_eager()


def test_where_eager_cannot_be_repeated_the_verdict_stays(pair_of):
    """A pass that makes eager fail at the second time must not turn "wrong" into "eager failed"."""
    pair = pair_of(add_relu_sample((3, 40)).variants[0])
    broken = TrialCandidate("pass", str(PASSES / "wrong"), read_pass_dir(PASSES / "wrong"))

    def report(stage: str) -> None:
        if stage == "eager again":
            pair.eager.stop()  # its next process has loaded nothing

    workers = TrialWorkers(pair.eager, pair.candidate)
    outcome = run_trial(pair.variant, broken, workers, pair.settings, 1, report)
    assert outcome.of_eager is None and not outcome.reason.startswith(EAGER_FAILED)
    assert "eager was not repeated: eager failed" in outcome.reason
    assert outcome.status in ("ok", "wrong") and (outcome.comparison.t_min is None or outcome.comparison.t_min > -5)
