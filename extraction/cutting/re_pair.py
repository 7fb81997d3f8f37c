"""Re-Pair: a grammar of what repeats in a text (Larsson and Moffat, "Offline Dictionary-Based Compression", Data
Compression Conference 1999).

The most frequent pair of neighbouring symbols becomes a rule, everywhere at once, until no pair repeats. The places of
a pair are a list linked through the text, as in the paper, so that a text of n symbols costs five arrays of n numbers.
A priority queue of counts finds the next pair. The work is linear in the text but for the queue and sorting the places.
"""

import heapq
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

WALL = -1
"""In a text: no pair crosses it."""
_GONE = -2
_NONE = -1  # no place
_LOOSE = -2  # a place that is in no list


@dataclass(frozen=True)
class Grammar:
    """Symbols below `terminals` stand for themselves; symbol s above is the pair `rules[s - terminals]`.

    `text[p]` is the symbol that begins at position p of what was parsed, `WALL`, or −2 within a symbol.
    """

    terminals: int
    rules: tuple[tuple[int, int], ...]
    text: array

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

    def symbols(self) -> Iterator[tuple[int, int]]:
        """Position and symbol, in order; walls are left out."""
        return ((position, symbol) for position, symbol in enumerate(self.text) if symbol >= 0)


def repair(text: Iterable[int], terminals: int, max_length: int, first: Sequence[tuple[int, int]] = ()) -> Grammar:
    """The Re-Pair grammar of symbols `0 … terminals − 1` and walls; no rule stands for more than `max_length`.

    Of pairs that are equally frequent the one of smaller symbols is first, so the grammar depends on the text alone,
    and not on the order of the parts between walls.

    `first` are the rules of a grammar of another text with the same terminals. They come first, in their order, however
    often their pairs stand here. A part of that text is parsed by them as it was there.
    """
    pairs = _Pairs(text, terminals, max_length)
    rules: list[tuple[int, int]] = []
    for pair in first:
        symbol = pairs.name(pair)
        rules.append(pair)
        if pairs.count(pair):
            for start in pairs.take(pair):
                pairs.replace(start, symbol)
    queue = [(-count, pair) for pair, (count, _) in pairs.lists.items() if count > 1]
    heapq.heapify(queue)
    while queue:
        negative, pair = heapq.heappop(queue)
        count = pairs.count(pair)
        if count != -negative:  # it fell since it was queued
            if count > 1:
                heapq.heappush(queue, (-count, pair))
            continue
        starts = pairs.take(pair)
        if len(starts) < 2:
            continue
        symbol = pairs.name(pair)
        rules.append(pair)
        grown = {changed for start in starts for changed in pairs.replace(start, symbol)}
        for changed in grown:
            count = pairs.count(changed)
            if count > 1:
                heapq.heappush(queue, (-count, changed))
    return Grammar(terminals, tuple(rules), pairs.symbols)


class _Pairs:
    """The text, linked past what was removed, and for each pair its count and the head of the list of its places."""

    def __init__(self, text: Iterable[int], terminals: int, max_length: int) -> None:
        self.symbols = array("i", text)
        self.lengths = [1] * terminals
        self.longest = max_length
        count = len(self.symbols)
        self.next = array("i", range(1, count + 1))
        self.previous = array("i", range(-1, count - 1))
        self.later = array("i", [_NONE]) * count  # in the list of a pair
        self.earlier = array("i", [_LOOSE]) * count
        self.lists: dict[tuple[int, int], list[int]] = {}
        for start in range(count):
            self._add(start)

    def count(self, pair: tuple[int, int]) -> int:
        """Places of the pair, overlapping ones included."""
        return self.lists[pair][0] if pair in self.lists else 0

    def name(self, pair: tuple[int, int]) -> int:
        """A new symbol for the pair."""
        self.lengths.append(self.lengths[pair[0]] + self.lengths[pair[1]])
        return len(self.lengths) - 1

    def take(self, pair: tuple[int, int]) -> list[int]:
        """Where the pair starts, without overlaps (in a run of three equal symbols the second pair overlaps).

        The pair's list is gone then. No new place of it can come: what replacing makes holds the new symbol.
        """
        places = []
        place = self.lists.pop(pair)[1]
        while place != _NONE:
            places.append(place)
            self.earlier[place] = _LOOSE
            place = self.later[place]
        starts, beyond = [], _NONE
        for place in sorted(places):
            if place >= beyond:
                starts.append(place)
                beyond = self.next[place] + 1
        return starts

    def replace(self, start: int, symbol: int) -> list[tuple[int, int]]:
        """Puts `symbol` in place of the pair at `start`; the pairs that this made."""
        second = self.next[start]
        before, after = self.previous[start], self.next[second]
        for place in (before, start, second):
            if place >= 0:
                self._remove(place)
        self.symbols[start], self.symbols[second] = symbol, _GONE
        self.next[start] = after
        if after < len(self.symbols):
            self.previous[after] = start
        made = (self._add(place) for place in (before, start) if place >= 0)
        return [pair for pair in made if pair is not None]

    def _pair(self, start: int) -> tuple[int, int] | None:
        following = self.next[start]
        if following >= len(self.symbols):
            return None
        left, right = self.symbols[start], self.symbols[following]
        return None if left < 0 or right < 0 else (left, right)

    def _add(self, start: int) -> tuple[int, int] | None:
        pair = self._pair(start)
        if pair is None or self.lengths[pair[0]] + self.lengths[pair[1]] > self.longest:
            return None
        known = self.lists.setdefault(pair, [0, _NONE])
        head = known[1]
        if head != _NONE:
            self.earlier[head] = start
        self.later[start], self.earlier[start] = head, _NONE
        known[0] += 1
        known[1] = start
        return pair

    def _remove(self, start: int) -> None:
        earlier, later = self.earlier[start], self.later[start]
        if earlier == _LOOSE:
            return
        pair = self._pair(start)
        known = self.lists[pair]
        known[0] -= 1
        if earlier == _NONE:
            known[1] = later
        else:
            self.later[earlier] = later
        if later != _NONE:
            self.earlier[later] = earlier
        self.earlier[start] = _LOOSE
        if not known[0]:
            del self.lists[pair]
