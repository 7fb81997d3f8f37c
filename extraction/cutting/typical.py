"""Typical subgraphs: op sequences that repeat across the corpus.

The corpus is one text per graph, its letters the op names. A Re-Pair grammar of it (`extraction.cutting.re_pair`) names
what repeats. A suffix array would find every repeat, most of them shifted copies of one another; a grammar parses each
graph into parts that do not overlap, its rules nest (attention inside a block inside a stage), and it takes near-linear
time. Of each parse the largest parts are taken that are neither too long nor too short nor one sequence repeated. Texts
come one by one and are kept as numbers, four bytes an op; the graphs need not stay in memory.

A corpus that grows keeps what was found in it before (`Repeats`): texts that are known keep their ranges. New texts are
parsed by the known rules, and get further rules for what repeats among themselves. A sequence that stands once in the
known texts and once in the new ones is found by neither; a search without known repeats finds it.
"""

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from extraction.cutting.re_pair import WALL, Grammar, repair

MIN_OPS = 4
MAX_OPS = 64


class Repeat(NamedTuple):
    """Ops `[start, end)` of a text, a sequence that repeats across the corpus."""

    start: int
    end: int


@dataclass(frozen=True)
class Repeats:
    """What was found in texts. `found`: of each text, by its digest, the repeated sequences, disjoint and in order.

    `names` are the op names and `rules` the pairs of their grammar (`extraction.cutting.re_pair.Grammar`).
    """

    names: tuple[str, ...] = ()
    rules: tuple[tuple[int, int], ...] = ()
    found: Mapping[str, Sequence[Repeat]] = field(default_factory=dict)


NOTHING = Repeats()


class Texts:
    """The op names of graphs, in the order in which they are added; `known` is what was found in others before."""

    def __init__(self, known: Repeats = NOTHING) -> None:
        self.known = known
        self._numbers: dict[str, int] = {}
        self._tokens = array("i")
        self._ends = array("q")  # of each new text, its wall included
        self._digests: list[str] = []  # likewise

    def add(self, tokens: Iterable[str | None]) -> str:
        """One more text; returns its digest (sha256, 20 hex digits). None is a token that no sequence may hold."""
        text = list(tokens)
        digest = hashlib.sha256("\n".join(token or "" for token in text).encode()).hexdigest()[:20]
        if digest not in self.known.found:
            numbers = self._numbers
            self._tokens.extend(WALL if t is None else numbers.setdefault(t, len(numbers)) for t in text)
            self._tokens.append(WALL)
            self._ends.append(len(self._tokens))
            self._digests.append(digest)
        return digest

    def repeats(self, shortest: int = MIN_OPS, longest: int = MAX_OPS) -> Repeats:
        """What is known and, of each new text, its repeated sequences of `shortest` to `longest` tokens.

        What is found does not depend on the order of the texts.
        """
        if not self._digests:
            return self.known
        before = self.known.names
        names = (*before, *sorted(self._numbers.keys() - set(before)))
        place = {name: number for number, name in enumerate(names)}
        rank = array("i", (place[name] for name in self._numbers))
        further = len(names) - len(before)
        rules = [tuple(s if s < len(before) else s + further for s in pair) for pair in self.known.rules]
        ranked = (WALL if token == WALL else rank[token] for token in self._tokens)
        grammar = repair(ranked, len(names), longest, rules)
        found = dict(self.known.found)
        found.update(zip(self._digests, self._of_texts(grammar, shortest), strict=True))
        return Repeats(names, grammar.rules, found)

    def _of_texts(self, grammar: Grammar, shortest: int) -> Iterator[list[Repeat]]:
        """Of each new text the chosen parts."""
        parts = chain(_parts(grammar, shortest), [Repeat(len(self._tokens), len(self._tokens))])
        start, part = 0, next(parts)
        for end in self._ends:
            found = []
            while part.start < end:
                found.append(Repeat(part.start - start, part.end - start))
                part = next(parts)
            yield found
            start = end


def _parts(grammar: Grammar, shortest: int) -> Iterator[Repeat]:
    """The places of the chosen parts of the whole parse."""
    expansions: dict[int, tuple[int, ...]] = {}
    for place, root in grammar.symbols():
        position, stack = place, [root]
        while stack:
            symbol = stack.pop()
            if symbol < grammar.terminals:
                position += 1
                continue
            if symbol not in expansions:
                expansions[symbol] = grammar.expand(symbol)
            expansion = expansions[symbol]
            if len(expansion) >= shortest and _repeats_itself(expansion):
                stack.extend(reversed(grammar.rules[symbol - grammar.terminals]))
                continue
            if len(expansion) >= shortest:
                yield Repeat(position, position + len(expansion))
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
