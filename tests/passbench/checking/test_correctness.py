"""Agreement over drawn and timed calls, on outputs written straight into the memory of workers that never start."""

import pytest
import torch

from passbench.checking.correctness import Correctness
from passbench.inputs import batch_layout
from passbench.inputs.distribution import Distribution
from passbench.ipc.messages import OutputKind, OutputMeta
from passbench.layers import Layers
from passbench.result import VariantFailure
from passbench.settings import Settings
from passbench.workers.fork_server_client import shared_launcher
from passbench.workers.worker_handle import WorkerHandle
from passbench.workers.worker_pair import WorkerPair
from tests.passbench.samples import add_relu_sample

CPU = torch.device("cpu")


@pytest.fixture
def pair(tmp_path):
    settings = Settings(seed=1).resolved(CPU)
    launcher = shared_launcher(interpret=False)
    workers = [WorkerHandle(CPU, settings, launcher, tmp_path / name) for name in ("eager", "candidate")]
    one = WorkerPair(add_relu_sample((3, 40)).variants[0], *workers, settings, 1, Layers())
    one.outputs = (OutputMeta(OutputKind.TENSOR, torch.float32, (3, 40), (40, 1), -1),)
    yield one
    for worker in workers:
        worker.close()


def written(pair: WorkerPair, relative_error: float, calls: int = 2) -> batch_layout.BatchLayout:
    """A batch in which the candidate's last call is off by so much of eager's ones."""
    layout = pair.draw(calls, pair.outputs, Distribution.NORMAL)
    for worker in (pair.eager, pair.candidate):
        batch_layout.poison(worker.memory, layout.batch.outputs)
        for block in layout.batch.outputs:
            batch_layout.view(worker.memory, block).fill_(1000.0)
    for block in layout.batch.outputs:
        batch_layout.view(pair.candidate.memory, block)[-1, 1, 7] *= 1 + relative_error
    return layout


def test_the_loosest_level_of_all_calls_is_reported(pair):
    correctness = Correctness(pair)
    assert correctness.result is None
    correctness.compare(written(pair, 0.0))
    assert correctness.result.t_min == -10
    correctness.compare(written(pair, 1e-6))
    first = correctness.result.t_min
    assert -6 <= first <= -4
    correctness._drawn = True  # what follows is timed
    correctness.compare(written(pair, 1e-6))
    assert correctness.result.t_min == first
    correctness.compare(written(pair, 1e-3))
    assert correctness.result.t_min > first
    assert "output 0[1, 7] of draw" in str(correctness.result.worst)  # without the number of the call


def test_a_timed_call_that_is_wrong_at_every_level_is_a_failure(pair):
    correctness = Correctness(pair)
    correctness._drawn = True
    with pytest.raises(VariantFailure, match="differs from eager at every level") as failure:
        correctness.compare(written(pair, 1e9))
    assert (failure.value.status, failure.value.error_code) == ("wrong", 1)


def test_two_outputs_that_are_wrong_at_every_level_are_one_failure(pair):
    pair.outputs *= 2
    correctness = Correctness(pair)
    correctness._drawn = True
    with pytest.raises(VariantFailure, match="differs from eager at every level"):
        correctness.compare(written(pair, 1e9))


def test_an_output_that_nobody_wrote_is_a_failure(pair):
    layout = written(pair, 0.0)
    batch_layout.poison(pair.candidate.memory, layout.batch.outputs)
    with pytest.raises(VariantFailure, match="output 0 was never written"):
        Correctness(pair).compare(layout)
