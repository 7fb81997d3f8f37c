"""Turns within a round."""

from hypothesis import given
from hypothesis import strategies as st

from passbench.timing.rounds import turns_before


@given(st.permutations("ecdf"), st.sampled_from("ecdf"))
def test_a_further_turn_comes_before_its_own_and_beside_no_other_of_the_same(order, last):
    places = turns_before(order, "e", last)
    for place in range(len(order) + 1):
        turns = [last, *order[:place], "e", *order[place:], ""]
        beside = [turns[place], turns[place + 2]]
        assert (place in places) == ("e" not in beside and place < order.index("e"))


def test_beside_one_other_there_is_seldom_a_further_turn():
    assert turns_before("ce", "e", "e") == turns_before("ec", "e", None) == []
    assert turns_before("ce", "e", "c") == turns_before("ce", "e", None) == [0]
