"""Typical subgraphs: op sequences that repeat across the corpus.

The corpus is one text per graph, its letters the op names. A Re-Pair grammar of it (`extraction.cutting.re_pair`) names
what repeats. A suffix array would find every repeat, most of them shifted copies of one another; a grammar parses each
graph into parts that do not overlap, its rules nest (attention inside a block inside a stage), and it takes near-linear
time. Of each parse the largest parts are taken that are neither too long nor too short nor one sequence repeated. Texts
come one by one and are kept as numbers, four bytes an op; the graphs need not stay in memory.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from extraction.cutting.re_pair import WALL, Grammar, repair

MIN_OPS = 4
MAX_OPS = 64


class Repeat(NamedTuple):
    """Ops `[start, end)` of a text. Their sequence occurs `count` times in the parses of the corpus."""

    start: int
    end: int
    count: int


class Texts:
    """The op names of graphs, in the order in which they are added."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._tokens = array("i")
        self._ends = array("q")  # of each text, its wall included

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, tokens: Iterable[str | None]) -> None:
        """One more text. None is a token that no sequence may hold."""
        numbers = self._numbers
        self._tokens.extend(WALL if t is None else numbers.setdefault(t, len(numbers)) for t in tokens)
        self._tokens.append(WALL)
        self._ends.append(len(self._tokens))

    def repeats(self, shortest: int = MIN_OPS, longest: int = MAX_OPS) -> Iterator[list[Repeat]]:
        """For each text its repeated sequences of `shortest` to `longest` tokens, disjoint and in order.

        What is found does not depend on the order of the texts.
        """
        rank = array("i", [0]) * len(self._numbers)
        for new, name in enumerate(sorted(self._numbers)):
            rank[self._numbers[name]] = new
        ranked = (WALL if token == WALL else rank[token] for token in self._tokens)
        grammar = repair(ranked, len(rank), longest)
        expansions = [grammar.expand(grammar.terminals + n) for n in range(len(grammar.rules))]
        counts = _counts(grammar, expansions)
        parts = chain(_parts(grammar, expansions, shortest), [(len(self._tokens), ())])
        start, part = 0, next(parts)
        for end in self._ends:
            found = []
            while part[0] < end:
                position, expansion = part
                found.append(Repeat(position - start, position - start + len(expansion), counts[expansion]))
                part = next(parts)
            yield found
            start = end


def _counts(grammar: Grammar, expansions: Sequence[tuple[int, ...]]) -> Counter[tuple[int, ...]]:
    """How often each expansion stands in the parse trees; rules come after the symbols that they use."""
    uses: Counter[int] = Counter(symbol for _, symbol in grammar.symbols())
    counts: Counter[tuple[int, ...]] = Counter()
    for number in reversed(range(len(grammar.rules))):
        used = uses[grammar.terminals + number]
        counts[expansions[number]] += used
        for symbol in grammar.rules[number]:
            uses[symbol] += used
    return counts


def _parts(
    grammar: Grammar, expansions: Sequence[tuple[int, ...]], shortest: int
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Position and tokens of the chosen parts of the whole parse."""
    for place, root in grammar.symbols():
        position, stack = place, [root]
        while stack:
            symbol = stack.pop()
            if symbol < grammar.terminals:
                position += 1
                continue
            expansion = expansions[symbol - grammar.terminals]
            if len(expansion) >= shortest and _repeats_itself(expansion):
                stack.extend(reversed(grammar.rules[symbol - grammar.terminals]))
                continue
            if len(expansion) >= shortest:
                yield position, expansion
            position += len(expansion)


def _repeats_itself(tokens: tuple[int, ...]) -> bool:
    """Whether the tokens hold two whole periods or more (smallest period: Knuth, Morris and Pratt 1977)."""
    border = [0] * len(tokens)
    for position in range(1, len(tokens)):
        length = border[position - 1]
        while length and tokens[length] != tokens[position]:
            length = border[length - 1]
        border[position] = length + (tokens[length] == tokens[position])
    return 2 * (len(tokens) - border[-1]) <= len(tokens)
