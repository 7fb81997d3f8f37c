"""What counts of a search's time."""

import math
import time

import pytest

from agent.distill.search.search_clock import OTHER, SearchClock


def test_measuring_counts_but_for_what_it_waits_and_all_else_by_a_quarter(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    clock, waited = SearchClock(began=100.0), [3.0]
    now[0] += 4.0
    assert clock() == pytest.approx(4.0 * OTHER)
    with clock.measuring(lambda: waited[0]):
        now[0] += 8.0
        waited[0] += 6.0
    assert clock() == pytest.approx(2.0 + 10.0 * OTHER)
    with clock.measuring():
        now[0] += 1.0
    assert clock() == pytest.approx(3.0 + 10.0 * OTHER)


def test_a_search_is_over_when_its_answer_is_due():
    clock = SearchClock(due=time.monotonic() - 1.0, began=time.monotonic() - 8.0)
    assert clock.late and clock() == math.inf and 2.0 <= clock.counted < 3.0
    assert not SearchClock(due=time.monotonic() + 60.0).late
