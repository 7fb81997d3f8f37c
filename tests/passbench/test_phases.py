import time

import pytest

from passbench.phases import Phases


def test_the_innermost_phase_counts():
    phases = Phases()
    begin = time.perf_counter()
    with phases("outer"):
        time.sleep(0.02)
        for _ in range(2):
            with phases("inner"):
                time.sleep(0.03)
    assert phases.seconds["inner"] >= 0.06
    assert phases.seconds["outer"] >= 0.02
    assert sum(phases.seconds.values()) <= time.perf_counter() - begin


def test_a_phase_that_fails_counts_too():
    phases = Phases()
    with pytest.raises(ValueError, match="no"), phases("failing"):
        raise ValueError("no")
    assert phases.seconds["failing"] >= 0
