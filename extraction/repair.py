"""Re-Pair: a grammar of what repeats in a set of sequences (Larsson and Moffat, "Offline Dictionary-Based Compression",
Data Compression Conference 1999).

The most frequent pair of neighbouring symbols becomes a rule, everywhere at once, until no pair repeats. With an
occurrence list for each pair and a priority queue of counts, the work is linear in the input but for the queue.
"""

import heapq
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

Token = TypeVar("Token", bound=Hashable)

_GONE = -1
_WALL = -2  # between sequences


@dataclass(frozen=True)
class Grammar:
    """Symbols below `terminals` stand for themselves; symbol s above is the pair `rules[s - terminals]`.

    `sequences` are what the input sequences became.
    """

    terminals: int
    rules: tuple[tuple[int, int], ...]
    sequences: tuple[tuple[int, ...], ...]

    def expand(self, symbol: int) -> tuple[int, ...]:
        """The terminals that a symbol stands for."""
        result: list[int] = []
        stack = [symbol]
        while stack:
            top = stack.pop()
            if top < self.terminals:
                result.append(top)
            else:
                stack.extend(reversed(self.rules[top - self.terminals]))
        return tuple(result)


def repair(sequences: Sequence[Sequence[int]], terminals: int, max_length: int) -> Grammar:
    """The Re-Pair grammar of sequences of symbols `0 … terminals − 1`; no rule stands for more than `max_length`.

    Pairs do not cross sequences. Ties go to the pair of smaller symbols, so the grammar depends on the input alone.
    """
    text = _Text(sequences)
    lengths = [1] * terminals
    rules: list[tuple[int, int]] = []
    queue = [(-len(places), pair) for pair, places in text.places.items() if len(places) > 1]
    heapq.heapify(queue)
    while queue:
        negative, pair = heapq.heappop(queue)
        places = text.places.get(pair, {})
        if len(places) != -negative:  # the count fell since it was queued
            if len(places) > 1:
                heapq.heappush(queue, (-len(places), pair))
            continue
        length = lengths[pair[0]] + lengths[pair[1]]
        starts = text.separate(pair)
        if length > max_length or len(starts) < 2:
            text.places.pop(pair, None)
            continue
        symbol = terminals + len(rules)
        rules.append(pair)
        lengths.append(length)
        text.places.pop(pair)
        grown = {changed for start in starts for changed in text.replace(start, symbol)}
        for changed in grown:
            count = len(text.places.get(changed, ()))
            if count > 1:
                heapq.heappush(queue, (-count, changed))
    return Grammar(terminals, tuple(rules), text.sequences(len(sequences)))


class _Text:
    """All sequences in one array of symbols, linked past what was removed; `places[pair]` are where a pair starts."""

    def __init__(self, sequences: Sequence[Sequence[int]]) -> None:
        self.symbols: list[int] = [_WALL]
        for sequence in sequences:
            self.symbols += [*sequence, _WALL]
        count = len(self.symbols)
        self.next = list(range(1, count + 1))
        self.previous = list(range(-1, count - 1))
        self.places: dict[tuple[int, int], dict[int, None]] = {}
        for start in range(1, count - 1):
            self._add(start)

    def separate(self, pair: tuple[int, int]) -> list[int]:
        """Where `pair` starts, without overlaps (in a run of three equal symbols the second pair overlaps)."""
        starts, beyond = [], -1
        for start in sorted(self.places[pair]):
            if start >= beyond:
                starts.append(start)
                beyond = self.next[start] + 1
        return starts

    def replace(self, start: int, symbol: int) -> tuple[tuple[int, int], ...]:
        """Puts `symbol` in place of the pair at `start`; the pairs that this made."""
        second = self.next[start]
        before, after = self.previous[start], self.next[second]
        for place in (before, start, second):
            self._remove(place)
        self.symbols[start], self.symbols[second] = symbol, _GONE
        self.next[start], self.previous[after] = after, start
        return tuple(pair for pair in (self._add(before), self._add(start)) if pair is not None)

    def sequences(self, count: int) -> tuple[tuple[int, ...], ...]:
        """What is left between the walls."""
        result: list[list[int]] = []
        for symbol in self.symbols:
            if symbol == _WALL:
                result.append([])
            elif symbol != _GONE:
                result[-1].append(symbol)
        return tuple(tuple(sequence) for sequence in result[:count])

    def _pair(self, start: int) -> tuple[int, int] | None:
        left, right = self.symbols[start], self.symbols[self.next[start]]
        return None if left < 0 or right < 0 else (left, right)

    def _add(self, start: int) -> tuple[int, int] | None:
        pair = self._pair(start) if start > 0 else None
        if pair is not None:
            self.places.setdefault(pair, {})[start] = None
        return pair

    def _remove(self, start: int) -> None:
        pair = self._pair(start) if start > 0 else None
        if pair is not None and pair in self.places:
            self.places[pair].pop(start, None)
