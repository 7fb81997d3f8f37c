"""Workers that are timed beside each other have shared memory of one size."""

from dataclasses import replace

import pytest

from passbench.settings import Settings
from passbench.shared_bench import SharedBench
from passbench.workers.equal_memory import make_equal
from passbench.workers.worker_handle import FIRST_BYTES
from tests.passbench.samples import PASSES, add_relu_sample

MIB = 1 << 20
QUICK = Settings(draws=1, calls=2, batch=2, warmup=2, repeats=0, double=False, equal_memory=True)


def test_memory_is_replaced_where_it_is_too_small_or_not_equal():
    with SharedBench("cpu", QUICK) as bench:
        workers = [bench._worker(name, bench._launcher) for name in ("one", "other")]
        first = FIRST_BYTES["cpu"]
        assert not make_equal(workers, first), "all have what they began with"
        workers[0].reserve(3 * MIB)
        assert make_equal(workers, first)
        assert [worker.shared.size for worker in workers] == [3 * MIB] * 2, "memory of the CPU never shrinks"
        assert not make_equal(workers, 3 * MIB)
        assert make_equal(workers, 60 * MIB)
        assert [worker.shared.size for worker in workers] == [128 * MIB] * 2, "a third more, in steps of 64 MiB"
        for worker in workers:
            worker.close()


@pytest.mark.parametrize("grown", ["eager", "candidate"])
def test_sides_of_shared_rounds_have_memory_of_one_size(grown):
    what, named = add_relu_sample((3, 40)), {"eager": ("eager", None), "mine": ("pass", PASSES / "add_relu")}
    with SharedBench("cpu", QUICK) as bench:
        worker = bench._eager if grown == "eager" else bench._baseline_worker("eager")
        worker.reserve(5 * MIB)
        (found,) = bench.run_together(what, named)
        assert {result.status for result in found.values()} == {"ok"}
        assert bench._eager.shared.size == bench._baseline_worker("eager").shared.size == 5 * MIB
        worker.reserve(9 * MIB)
        bench.settings = replace(bench.settings, equal_memory=False)
        (found,) = bench.run_together(what, named)
        assert {result.status for result in found.values()} == {"ok"}
        assert bench._eager.shared.size != bench._baseline_worker("eager").shared.size, "unless it is asked for"


@pytest.mark.gpu
def test_memory_of_a_gpu_shrinks_to_what_is_needed():
    settings = replace(QUICK, calls=None, batch=None, warmup=None)
    what, named = add_relu_sample((256, 256)), {"eager": ("eager", None), "mine": ("pass", PASSES / "add_relu")}
    with SharedBench("cuda", settings) as bench:
        bench._eager.reserve(2048 * MIB)
        (found,) = bench.run_together(what, named)
        assert {result.status for result in found.values()} == {"ok"}
        assert {t.clock for t in found["eager"].timings} == {"e2e", "device"}
        assert bench._eager.shared.size == bench._baseline_worker("eager").shared.size == FIRST_BYTES["cuda"]
