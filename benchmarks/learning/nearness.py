"""How near tasks are to what was learned from, and what became of near ones and of far ones."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from storage.records import Sample


def memorised(
    train: Sequence[Mapping[str, Any]], samples: Sequence[Sample], answers: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Counts of right answers by the similarity of a sample's op sequence to the nearest demonstration's, and by
    whether all its operators are in demonstrations; how many answers are those of demonstrations; and each sample's
    similarity. `answers` has rows with `sample`, `answer` and `right`, one for each of the samples."""
    known = {tuple(row["op_sequence"]) for row in train}
    operators = {op for ops in known for op in ops}
    texts = {row["answer"].strip() for row in train}
    sequences = {s.sample: tuple(s.variants[0].graph.op_sequence) for s in samples}
    near = {name: nearest(ops, known) for name, ops in sequences.items()}
    by_operators: dict[str, list[bool]] = {}
    for one in answers:
        name = "all" if operators.issuperset(sequences[one["sample"]]) else "not all"
        by_operators.setdefault(name, []).append(one["right"])
    return {
        "right_by_similarity_to_the_nearest": by_similarity(
            [near[one["sample"]] for one in answers], [one["right"] for one in answers]
        ),
        "right_by_whether_operators_are_known": {name: [sum(g), len(g)] for name, g in sorted(by_operators.items())},
        "answers_that_are_training_answers": sum(a["answer"].strip() in texts for a in answers),
        "nearest": near,
    }


def by_similarity(near: Sequence[float], right: Sequence[bool]) -> dict[str, list[int]]:
    """How many are right, and of how many, of those that are at least 0.8 alike to the nearest, from 0.6 to 0.8, and
    below."""
    found: dict[str, list[bool]] = {}
    for ratio, one in zip(near, right, strict=True):
        name = "0.8 and more" if ratio >= 0.8 else "0.6 to 0.8" if ratio >= 0.6 else "below 0.6"
        found.setdefault(name, []).append(one)
    return {name: [sum(group), len(group)] for name, group in sorted(found.items())}


def all_nearest(sequences: Sequence[tuple[str, ...]], known: set[tuple[str, ...]]) -> list[float]:
    """`nearest` of each."""
    return [nearest(ops, known) for ops in sequences]


def nearest(ops: tuple[str, ...], known: Iterable[tuple[str, ...]]) -> float:
    """The similarity of the op sequence of `known` that is nearest."""
    best, matcher = 0.0, SequenceMatcher(None, (), ops, False)
    for one in known:
        matcher.set_seq1(one)
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best:
            best = max(best, matcher.ratio())
    return best
