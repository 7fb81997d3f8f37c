"""The search, with measurements that are scripted."""

import time

from hypothesis import given
from hypothesis import strategies as st

from agent.distill.search.hill_climb import Search
from agent.distill.search.scores import Merit
from agent.distill.search.search_clock import SearchClock


def _merit(score):
    """Of a speedup, or of both clocks' with what the host does; None is wrong."""
    return score if isinstance(score, Merit) else Merit(score or 0.0)


def _search(scores, seconds=100.0, **options):
    """A search over whole numbers, whose neighbours are one less and one more; a measurement takes a second."""
    now, known = [0.0], set()

    def measure(choice):
        now[0] += choice not in known
        known.add(choice)
        return _merit(scores.get(choice))

    return Search(measure, lambda n: (n - 1, n + 1), seconds, clock=lambda: now[0], **options)


def test_it_climbs_to_the_best_and_measures_nothing_twice():
    search = _search({0: 1.1, 1: 1.2, 2: 1.3, 3: 1.4, 4: 1.2, -1: 0.9})
    assert search.run(0) == 3
    assert list(search.measured) == [0, -1, 1, 2, 3, 4]


def test_nothing_is_the_answer_where_nothing_is_clearly_faster():
    assert _search({0: 0.8, 1: 1.01, 2: 1.015}).run(0) is None
    assert _search({0: 1.01}, worth=1.0).run(0) == 0


def test_a_wrong_start_is_left_for_any_choice_that_is_right():
    assert _search({0: None, 1: 1.5}).run(0) == 1
    assert _search({}).run(0) is None


def test_it_stops_when_the_time_is_up_with_the_best_so_far():
    search = _search({n: 1.1**n for n in range(1, 100)}, seconds=5.0)
    assert search.run(1) == 4
    assert len(search.measured) == 5


def test_it_climbs_from_the_best_of_several_starts():
    search = _search({0: 1.1, 5: 1.3, 9: 1.2, 6: 1.4})
    assert search.run(0, 5, 9) == 6
    assert list(search.measured)[:3] == [0, 5, 9]


def test_the_devices_clock_decides_between_choices_that_cost_the_host_the_same():
    assert _search({0: Merit(1.13, 0.88, "one"), 1: Merit(1.05, 1.1, "one")}).run(0) == 1
    assert _search({0: Merit(1.13, 0.88, "one"), 1: Merit(1.12, 1.1, "two")}).run(0) == 0
    assert _search({0: Merit(1.13, 0.88, "one"), 1: Merit(0.0, 1.1, "one")}).run(0) == 0, "1 is wrong"


def test_what_would_end_too_late_is_not_begun():
    search = _search({0: 1.0, 1: 1.1, 2: 1.2}, seconds=2.9)
    assert search.run(1) == 1
    assert list(search.measured) == [1, 0]


@given(st.dictionaries(st.integers(-5, 5), st.none() | st.floats(0.1, 10.0)), st.integers(-5, 5), st.floats(0, 20))
def test_the_answer_is_never_worse_than_nothing_nor_than_the_start(scores, start, seconds):
    search = _search(scores, seconds)
    best = search.run(start)
    assert len(search.measured) <= seconds + 2
    if best is None:
        assert all((scores.get(n) or 0.0) < search.worth * search.better for n in search.measured)
    else:
        assert scores[best] >= search.worth
        assert scores[best] >= (scores.get(start) or 0.0)


def test_what_is_not_measuring_counts_by_a_quarter():
    clock = SearchClock()
    begin = time.monotonic()
    time.sleep(0.02)
    assert 0.005 <= clock() <= 0.25 * (time.monotonic() - begin) + 0.001
    with clock.measuring():
        time.sleep(0.02)
    assert clock() >= 0.025
