"""Shape points: the sizes at which a symbolic subgraph is tried, joint over its symbols, small to large.

Each symbol has a ladder of sizes that occur in inference. What a name means is in its words (`decoder_sequence` is a
sequence), and where a name says nothing, multiples of the traced size serve. With one kind of symbol the points are its
ladder. With a batch beside it, points climb both ladders together: most of their product are sizes that nobody runs. A
decoder's sequence is a step behind that of its encoder. The point of the trace is always among the points, and one with
batch 1.
"""

from collections.abc import Iterator, Mapping, Sequence

MAX_POINTS = 10

BATCH = (1, 3, 4, 6, 8, 16, 32, 64, 128)
LADDERS: dict[str, tuple[int, ...]] = {
    "sequence": (16, 32, 64, 100, 128, 256, 512, 1024, 2048),  # tokens
    "height": (96, 128, 160, 192, 224, 256, 288, 384, 480),  # pixels; with the widths, some are not square
    "width": (96, 128, 160, 256, 224, 320, 288, 384, 640),
    "size": (96, 128, 160, 192, 224, 256, 288, 384, 512),  # height and width of square images
    "samples": (4_000, 8_000, 16_000, 24_000, 32_000, 48_000, 80_000, 160_000, 320_000),  # of sound, 16 kHz
    "frames": (100, 200, 300, 400, 500, 800, 1_000, 1_500, 3_000),  # of spectrograms, 10 ms
    "clip": (2, 4, 6, 8, 12, 16, 24, 32, 64),  # frames of video
}
"""Sizes of each kind of symbol, one a step; steps of different kinds are taken together."""

SYNONYMS = {
    "sequence": "seq length len tokens positions source target text decoder encoder past cache ids".split(),
    "height": ["h"],
    "width": ["w"],
    "size": "resolution image side pixels".split(),
    "samples": "sample sound audio waveform".split(),
    "frames": "frame spectrogram bins time".split(),
    "clip": "video".split(),
}
_JOINT = ((1, 0), (1, 2), (1, 4), (4, 2), (1, 6), (8, 4), (1, 8), (16, 5), (32, 3))
"""(batch, step of the other symbols' ladders) of each point: work grows about a hundredfold from first to last."""
_MULTIPLES = (0.25, 0.5, 0.75, 1.5, 2, 3, 4, 6, 8)
_CLIP_FRAMES = 64
"""Frames of a trace are a video's if there are no more than so many, else a sound's."""

Point = dict[str, int]


def points(traced: Mapping[str, int], limit: int = MAX_POINTS) -> list[Point]:
    """Up to `limit` joint points for these symbols, given with their sizes in the trace; no two are equal.

    The trace's own point comes first, so that a caller who drops equal shapes keeps that one; then points from small
    to large. Without symbols there is one point, the empty one. Raises ValueError if `limit` is below 1.
    """
    if limit < 1:
        raise ValueError(f"{limit} points")
    found = [dict(traced)]
    for point in _candidates(traced):
        if point not in found:
            found.append(point)
    return _spread(found, limit)


def _candidates(traced: Mapping[str, int]) -> Iterator[Point]:
    ladders = {name: _ladder(name, size) for name, size in traced.items()}
    kinds = {name: kind_of(name) for name in traced}
    for name in filter(_is_target, traced):
        if any(kinds[other] == kinds[name] and not _is_target(other) for other in traced):
            ladders[name] = (ladders[name][0], *ladders[name][:-1])
    batches = [name for name in traced if _is_batch(name)]
    if not batches or len(batches) == len(traced):
        for step in range(len(BATCH)):
            yield {name: ladder[step] for name, ladder in ladders.items()}
        return
    for batch, step in _JOINT:
        yield {name: batch if name in batches else ladder[step] for name, ladder in ladders.items()}


def _spread(found: Sequence[Point], limit: int) -> list[Point]:
    """The first and then `limit − 1` others, evenly from the smallest to the largest."""
    first, rest = found[0], found[1:]
    if len(found) <= limit:
        return list(found)
    if limit < 3:
        return [first, *rest[: limit - 1]]
    return [first, *(rest[round(n * (len(rest) - 1) / (limit - 2))] for n in range(limit - 1))]


def _is_batch(name: str) -> bool:
    return "batch" in name.split("_")


def _is_target(name: str) -> bool:
    """Whether the name is of a decoder's input, which is seldom as long as its encoder's."""
    return not {"decoder", "target"}.isdisjoint(name.split("_"))


def _ladder(name: str, size: int) -> Sequence[int]:
    if _is_batch(name):
        return BATCH
    kind = kind_of(name)
    if kind == "frames" and size <= _CLIP_FRAMES:
        kind = "clip"
    return LADDERS[kind] if kind else [max(1, round(size * factor)) for factor in _MULTIPLES]


def kind_of(name: str) -> str | None:
    """The ladder that a symbol's name means: its last word that is known, numbers apart. None where none is."""
    for word in reversed(name.rstrip("0123456789").split("_")):
        word = word.rstrip("0123456789")
        for kind in LADDERS:
            if word == kind or word == f"{kind}s" or word in SYNONYMS[kind]:
                return kind
    return None
