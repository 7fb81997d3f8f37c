import pytest
import torch

from passbench.settings import Settings
from passbench.timing import LEAST_US, Round, median_iqr, per_call_us, summarise


def test_the_empty_exchange_is_taken_off():
    assert per_call_us(120_000, 20_000, 10) == 10.0
    assert per_call_us(10_000, 20_000, 10) == LEAST_US


def test_median_and_interquartile_range():
    assert median_iqr([1.0, 2.0, 3.0, 4.0, 100.0]) == (3.0, 2.0)
    assert median_iqr([5.0]) == (5.0, 0.0)


def test_the_quietest_round_counts_and_noise_is_said():
    noisy = Round(4, [10.0, 20.0, 30.0, 40.0], [10.0, 10.0, 10.0, 10.0])
    quiet = Round(4, [20.0, 20.0, 21.0, 20.0], [10.0, 10.0, 10.0, 10.0])
    timing = summarise("e2e", [noisy, quiet], 0.2)
    assert (timing.eager_us, timing.candidate_us, timing.speedup) == (20.0, 10.0, 2.0)
    assert (timing.calls, timing.repeats, timing.noisy) == (4, 1, False)
    assert summarise("e2e", [noisy], 0.2).noisy


def test_defaults_depend_on_the_device():
    cuda, cpu = (Settings().resolved(torch.device(d)) for d in ("cuda", "cpu"))
    assert cuda.calls >= 100 and cuda.warmup == 25 and cuda.child_memory_bytes is None
    assert cpu.calls < 10 and cpu.draws <= 2
    assert Settings(calls=7).resolved(torch.device("cpu")).calls == 7
    with pytest.raises(ValueError, match="unknown"):
        Settings(protocol="other")
