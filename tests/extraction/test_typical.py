import random
import time
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from extraction.repair import repair
from extraction.typical import repeats

sequences = st.lists(st.lists(st.integers(0, 2), max_size=40), max_size=4)


@given(sequences, st.integers(2, 20))
def test_a_grammar_expands_to_what_it_was_made_from(given_: list[list[int]], longest: int) -> None:
    grammar = repair(given_, 3, longest)
    expanded = [[t for symbol in sequence for t in grammar.expand(symbol)] for sequence in grammar.sequences]
    assert expanded == given_
    assert all(len(grammar.expand(3 + n)) <= longest for n in range(len(grammar.rules)))


@given(sequences)
def test_no_pair_repeats_in_the_end(given_: list[list[int]]) -> None:
    grammar = repair(given_, 3, 10**6)
    seen: set[tuple[int, int]] = set()
    for sequence in grammar.sequences:
        previous = None
        for pair in pairwise(sequence):
            assert pair not in seen or pair == previous  # an overlapping run
            seen.add(pair)
            previous = pair


def test_known_grammar() -> None:
    """By hand: `ab` and `bc` stand three times, `ab` has the smaller symbols; then `(ab)c` stands three times."""
    text = [ord(c) - 97 for c in "abcabcabcd"]
    grammar = repair([text], 26, 64)
    assert grammar.rules == ((0, 1), (26, 2))
    assert grammar.sequences == ((27, 27, 27, 3),)
    assert grammar.expand(27) == (0, 1, 2)


texts = st.lists(st.lists(st.one_of(st.none(), st.sampled_from("abc")), max_size=60), max_size=4)


@given(texts)
def test_repeats_are_disjoint_and_repeat(given_: list[list[str | None]]) -> None:
    found = repeats(given_, shortest=2, longest=8)
    for text in range(len(given_)):
        own = [r for r in found if r.text == text]
        assert all(a.end <= b.start for a, b in pairwise(own))
    for repeat in found:
        tokens = given_[repeat.text][repeat.start : repeat.end]
        assert 2 <= len(tokens) <= 8
        assert None not in tokens
        assert repeat.count >= 2
        assert _standing(given_, tokens) >= repeat.count
        chosen = [r for r in found if given_[r.text][r.start : r.end] == tokens]
        assert len(chosen) <= repeat.count
        assert not any(tokens == tokens[:p] * (len(tokens) // p) for p in range(1, len(tokens)) if len(tokens) % p == 0)


def _standing(texts: list[list[str | None]], tokens: list[str | None]) -> int:
    """How often the tokens stand in the texts without overlap, counting from the left."""
    count = 0
    for text in texts:
        position = 0
        while position + len(tokens) <= len(text):
            hit = text[position : position + len(tokens)] == tokens
            count += hit
            position += len(tokens) if hit else 1
    return count


def test_known_repeats() -> None:
    block = list("abcdefg")
    found = repeats([["x", *block, "y", *block, "z"], ["w", *block, None, *block[:3]]])
    assert [(r.text, r.start, r.end, r.count) for r in found] == [(0, 1, 8, 3), (0, 9, 16, 3), (1, 1, 8, 3)]


def test_a_stack_of_blocks_gives_blocks_not_stacks() -> None:
    block = list("abcdefgh")
    found = repeats([block * 8])
    assert {r.end - r.start for r in found} == {8}
    assert len(found) == 8


def test_nothing_repeats() -> None:
    assert repeats([list("abcdefgh"), []]) == []


def test_time_grows_with_the_text() -> None:
    source = random.Random(0)
    blocks = [[source.randrange(80) for _ in range(source.randrange(5, 50))] for _ in range(100)]

    def seconds(tokens: int) -> float:
        text: list[list[int]] = []
        while sum(map(len, text)) < tokens:
            text.append([t for _ in range(20) for t in source.choice(blocks)])
        started = time.process_time()
        repair(text, 80, 64)
        return time.process_time() - started

    small, large = min(seconds(20_000) for _ in range(3)), seconds(160_000)
    assert large < 20 * small  # eight times the text; quadratic would be 64 times the work
