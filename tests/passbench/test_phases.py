import pytest

from passbench.phases import Phases


def clock(monkeypatch, *readings: float) -> None:
    """`time.perf_counter` says these numbers, one after another."""
    remaining = iter(readings)
    monkeypatch.setattr("time.perf_counter", lambda: next(remaining))


def test_the_innermost_phase_counts(monkeypatch):
    phases = Phases()
    clock(monkeypatch, 0, 2, 5, 6, 10, 17)
    with phases("outer"):  # 0 to 17
        for _ in range(2):
            with phases("inner"):  # 2 to 5, and 6 to 10
                pass
    assert phases.seconds == {"inner": 7, "outer": 10}


def test_a_phase_that_fails_counts_too(monkeypatch):
    phases = Phases()
    clock(monkeypatch, 1, 2, 4, 8)
    with pytest.raises(ValueError, match="no"), phases("around"), phases("failing"):
        raise ValueError("no")
    assert phases.seconds == {"failing": 2, "around": 5}
