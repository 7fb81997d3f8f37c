"""Typical subgraphs: op sequences that repeat across the corpus.

The corpus is one text per graph, its letters the op names. A Re-Pair grammar of it (`extraction.repair`) names what
repeats. A suffix array would find every repeat, most of them shifted copies of one another; a grammar parses each graph
into parts that do not overlap, its rules nest (attention inside a block inside a stage), and it takes near-linear time.
From each parse the largest parts are taken that are long enough, short enough, and not themselves one thing repeated.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from extraction.repair import Grammar, repair

MIN_OPS = 4
MAX_OPS = 64


@dataclass(frozen=True)
class Repeat:
    """Ops `[start, end)` of text number `text`; their sequence stands `count` times in the parses of the corpus."""

    text: int
    start: int
    end: int
    count: int


def repeats(texts: Sequence[Sequence[str | None]], shortest: int = MIN_OPS, longest: int = MAX_OPS) -> list[Repeat]:
    """The repeated sequences of `shortest` to `longest` tokens, disjoint within a text, in order.

    None is a token that no sequence may hold.
    """
    alphabet = {token: number for number, token in enumerate(sorted({t for text in texts for t in text if t}))}
    pieces = [(number, *piece) for number, text in enumerate(texts) for piece in _pieces(text)]
    grammar = repair([[alphabet[t] for t in tokens] for _, _, tokens in pieces], len(alphabet), longest)
    expansions = [grammar.expand(grammar.terminals + n) for n in range(len(grammar.rules))]
    counts = _counts(grammar, expansions)
    found = []
    for (number, offset, _), parse in zip(pieces, grammar.sequences, strict=True):
        for start, length, expansion in _parts(grammar, expansions, parse, shortest):
            found.append(Repeat(number, offset + start, offset + start + length, counts[expansion]))
    return found


def _pieces(text: Sequence[str | None]) -> Iterator[tuple[int, list[str]]]:
    start = 0
    for position, token in enumerate([*text, None]):
        if token is None:
            if position > start:
                yield start, list(text[start:position])
            start = position + 1


def _counts(grammar: Grammar, expansions: Sequence[tuple[int, ...]]) -> Counter[tuple[int, ...]]:
    """How often each expansion stands in the parse trees; rules come after the symbols that they use."""
    uses: Counter[int] = Counter(symbol for sequence in grammar.sequences for symbol in sequence)
    counts: Counter[tuple[int, ...]] = Counter()
    for number in reversed(range(len(grammar.rules))):
        used = uses[grammar.terminals + number]
        counts[expansions[number]] += used
        for symbol in grammar.rules[number]:
            uses[symbol] += used
    return counts


def _parts(
    grammar: Grammar, expansions: Sequence[tuple[int, ...]], parse: Sequence[int], shortest: int
) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Start, length and tokens of the chosen parts of one parse."""
    stack = list(reversed(parse))
    position = 0
    while stack:
        symbol = stack.pop()
        if symbol < grammar.terminals:
            position += 1
            continue
        expansion = expansions[symbol - grammar.terminals]
        if len(expansion) < shortest:
            position += len(expansion)
        elif _repeats_itself(expansion):
            stack.extend(reversed(grammar.rules[symbol - grammar.terminals]))
        else:
            yield position, len(expansion), expansion
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
