"""Turns within a round."""

from hypothesis import given
from hypothesis import strategies as st

from passbench.timing.rounds import turns_between


@given(st.permutations("ecdf"), st.sampled_from("ecdf"))
def test_a_further_turn_comes_beside_no_other_of_the_same(order, last):
    places = turns_between(order, "e", last)
    for place in range(len(order) + 1):
        turns = [last, *order[:place], "e", *order[place:], ""]
        beside = [turns[place], turns[place + 2]]
        assert (place in places) == ("e" not in beside)
    assert places


def test_beside_one_other_there_is_seldom_a_further_turn():
    assert turns_between("ce", "e", "e") == []
    assert turns_between("ec", "e", None) == [2]
