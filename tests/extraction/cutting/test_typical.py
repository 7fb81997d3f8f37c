import random
import time
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from itertools import groupby, pairwise

from hypothesis import given
from hypothesis import strategies as st

from extraction.cutting.re_pair import WALL, Grammar, repair
from extraction.cutting.typical import Repeat, Repeats, Texts

sequences = st.lists(st.lists(st.integers(0, 2), max_size=40), max_size=4)


def _walled(parts: Sequence[Sequence[int]]) -> list[int]:
    return [symbol for part in parts for symbol in (*part, WALL)]


def _parses(grammar: Grammar) -> list[list[int]]:
    """The symbols between walls; parts that are empty are left out."""
    kept = [symbol for symbol in grammar.text if symbol >= WALL]
    return [list(part) for wall, part in groupby(kept, lambda symbol: symbol == WALL) if not wall]


@given(sequences, st.integers(2, 20))
def test_a_grammar_expands_to_what_it_was_made_from(given_: list[list[int]], longest: int) -> None:
    grammar = repair(_walled(given_), 3, longest)
    expanded = [[t for symbol in parse for t in grammar.expand(symbol)] for parse in _parses(grammar)]
    assert expanded == [part for part in given_ if part]
    assert all(len(grammar.expand(3 + n)) <= longest for n in range(len(grammar.rules)))
    text = _walled(given_)
    for position, symbol in grammar.symbols():
        expansion = list(grammar.expand(symbol))
        assert text[position : position + len(expansion)] == expansion


@given(sequences)
def test_no_pair_repeats_in_the_end(given_: list[list[int]]) -> None:
    seen: set[tuple[int, int]] = set()
    for parse in _parses(repair(_walled(given_), 3, 10**6)):
        previous = None
        for pair in pairwise(parse):
            assert pair not in seen or pair == previous  # an overlapping run
            seen.add(pair)
            previous = pair


@given(sequences, st.integers(2, 20), st.randoms())
def test_the_grammar_is_the_one_of_the_plain_algorithm(
    given_: list[list[int]], longest: int, order: random.Random
) -> None:
    rules, parses = _plain(given_, 3, longest)
    grammar = repair(_walled(given_), 3, longest)
    assert list(grammar.rules) == rules
    assert _parses(grammar) == parses
    order.shuffle(given_)
    assert list(repair(_walled(given_), 3, longest).rules) == rules


def _plain(parts: list[list[int]], terminals: int, longest: int) -> tuple[list[tuple[int, int]], list[list[int]]]:
    """Re-Pair without any data structure: counts everything anew for every rule."""
    lengths, rules, given_up = [1] * terminals, [], set()
    while True:
        counts = Counter(pair for part in parts for pair in pairwise(part))
        fitting = {p: n for p, n in counts.items() if p not in given_up and lengths[p[0]] + lengths[p[1]] <= longest}
        if not fitting or max(fitting.values()) < 2:
            return rules, [part for part in parts if part]
        pair = min(fitting, key=lambda p: (-fitting[p], p))
        replaced = [_replaced(part, pair, len(lengths)) for part in parts]
        if sum(map(len, parts)) - sum(map(len, replaced)) < 2:  # in a run of three the pair stands but once
            given_up.add(pair)
            continue
        rules.append(pair)
        lengths.append(lengths[pair[0]] + lengths[pair[1]])
        parts = replaced


def _replaced(part: list[int], pair: tuple[int, int], symbol: int) -> list[int]:
    result, position = [], 0
    while position < len(part):
        hit = tuple(part[position : position + 2]) == pair
        result.append(symbol if hit else part[position])
        position += 1 + hit
    return result


def test_known_grammar() -> None:
    """By hand: `ab` and `bc` stand three times, `ab` has the smaller symbols; then `(ab)c` stands three times."""
    text = [ord(c) - 97 for c in "abcabcabcd"]
    grammar = repair(text, 26, 64)
    assert grammar.rules == ((0, 1), (26, 2))
    assert _parses(grammar) == [[27, 27, 27, 3]]
    assert grammar.expand(27) == (0, 1, 2)


texts = st.lists(st.lists(st.one_of(st.none(), st.sampled_from("abc")), max_size=60), max_size=4)


def _repeats(given_: Sequence[Sequence[str | None]], **limits: int) -> list[list[Repeat]]:
    return _found(given_, **limits)[0]


def _found(
    given_: Sequence[Sequence[str | None]], known: Repeats | None = None, **limits: int
) -> tuple[list[list[Repeat]], Repeats]:
    """The repeats of each text, and all that is known after them."""
    corpus = Texts(known or Repeats())
    digests = [corpus.add(text) for text in given_]
    repeats = corpus.repeats(**limits)
    return [list(repeats.found[digest]) for digest in digests], repeats


@given(texts, texts)
def test_repeats_are_disjoint_and_repeat(given_: list[list[str | None]], later: list[list[str | None]]) -> None:
    first, known = _found(given_, shortest=2, longest=8)
    second, _ = _found(later, known, shortest=2, longest=8)
    for corpus, found in ((given_, first), (given_ + later, first + second)):
        assert len(found) == len(corpus)
        assert all(a.end <= b.start for own in found for a, b in pairwise(own))
        for tokens in (corpus[text][r.start : r.end] for text, own in enumerate(found) for r in own):
            assert 2 <= len(tokens) <= 8
            assert None not in tokens
            assert _standing(corpus, tokens) >= 2
            assert not any(
                tokens == tokens[:p] * (len(tokens) // p) for p in range(1, len(tokens)) if len(tokens) % p == 0
            )


@given(texts, texts, st.randoms())
def test_what_is_known_stays(
    given_: list[list[str | None]], later: list[list[str | None]], order: random.Random
) -> None:
    limits = {"shortest": 2, "longest": 8}
    first, known = _found(given_, **limits)
    whole, grown = _found(given_ + later, known, **limits)
    assert whole[: len(given_)] == first
    assert _found(later, known, **limits) == (whole[len(given_) :], grown), "known texts need not come again"
    assert grown.names[: len(known.names)] == known.names
    shuffled = given_ + later
    assert _found(shuffled, grown, **limits) == (whole, grown)
    order.shuffle(shuffled)
    assert _found(shuffled, known, **limits)[1] == grown


def test_a_new_text_is_parsed_by_what_is_known_and_adds_what_repeats_in_it() -> None:
    old, new = list("abcde"), list("vwxyz")
    first, known = _found([["s", *old, "t", *old]])
    assert first == [[(1, 6), (7, 12)]]
    second, grown = _found([["q", *old, *new, "t", *new, "s"]], known)
    assert second == [[(1, 6), (6, 11), (12, 17)]], "the old block once, the new one twice"
    third, _ = _found([["r", *new], ["u", "t", "s"]], grown)
    assert third == [[(1, 6)], []]
    assert _repeats([["r", *new], ["q", *old]]) == [[], []], "without what is known nothing repeats in these"


@given(texts)
def test_known_rules_parse_a_text_as_the_search_did_that_found_them(given_: list[list[str | None]]) -> None:
    first, known = _found(given_, shortest=2, longest=8)
    rules_alone = Repeats(known.names, known.rules)
    again, grown = _found(given_, rules_alone, shortest=2, longest=8)
    assert again == first
    assert grown.rules == known.rules


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
    found = _repeats([["x", *block, "y", *block, "z"], ["w", *block, None, *block[:3]]])
    assert found == [[(1, 8), (9, 16)], [(1, 8)]]


def test_a_stack_of_blocks_gives_blocks_not_stacks() -> None:
    block = list("abcdefgh")
    (found,) = _repeats([block * 8])
    assert {r.end - r.start for r in found} == {8}
    assert len(found) == 8


def test_nothing_repeats() -> None:
    assert _repeats([list("abcdefgh"), []]) == [[], []]
    assert _repeats([]) == []


@given(texts, st.randoms())
def test_the_order_of_the_texts_does_not_matter(given_: list[list[str | None]], order: random.Random) -> None:
    places = list(range(len(given_)))
    order.shuffle(places)
    found = _repeats(given_, shortest=2, longest=8)
    assert _repeats([given_[n] for n in places], shortest=2, longest=8) == [found[n] for n in places]


def _corpus(tokens: int) -> list[list[int]]:
    source = random.Random(0)
    blocks = [[source.randrange(80) for _ in range(source.randrange(5, 50))] for _ in range(100)]
    text: list[list[int]] = []
    while sum(map(len, text)) < tokens:
        text.append([t for _ in range(20) for t in source.choice(blocks)])
    return text


def test_time_grows_with_the_text() -> None:
    def seconds(tokens: int) -> float:
        text = _walled(_corpus(tokens))
        started = time.process_time()
        repair(text, 80, 64)
        return time.process_time() - started

    small, large = min(seconds(10_000) for _ in range(3)), seconds(80_000)
    assert large < 20 * small  # eight times the text; quadratic would be 64 times the work


def test_memory_is_a_few_numbers_an_op() -> None:
    corpus = _corpus(15_000)
    tracemalloc.start()
    texts = Texts()
    for text in corpus:
        texts.add(str(token) for token in text)
    kept, _ = tracemalloc.get_traced_memory()
    texts.repeats()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 6 * 15_000
    assert peak < 120 * 15_000  # five arrays, the places of one pair, and the rules: many in a text so short
