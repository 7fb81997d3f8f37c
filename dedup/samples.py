"""Variants → samples: one task a family and category, with its split.

The engine groups and counts; only one row a family comes into Python, where the split is chosen (`dedup.splits`).
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from dedup.database import Engine
from dedup.splits import LEARNED, NOT_CHOSEN, FamilyCandidate, Transition, bits, choose, transitions
from storage.schema import CATEGORIES, SAMPLES

EVAL_FUSIBLE = 200
EVAL_TYPICAL = 200
EVAL_SOLE_OP = 40
MAX_EVAL_SHARE = 0.2

_FAMILIES = """
CREATE OR REPLACE TABLE families AS
SELECT category, family_hash, any_value(op_sequence) AS op_sequence, sum(occurrences)::BIGINT AS occurrences,
    list(variant_hash ORDER BY variant_hash) AS variants
FROM {relation} GROUP BY ALL
"""

_TRANSITIONS = """
SELECT step[1], step[2], sum(occurrences)::BIGINT FROM (
    SELECT occurrences, unnest(CASE WHEN len(op_sequence) = 1 THEN [['', op_sequence[1]]]
        ELSE list_transform(range(1, len(op_sequence)), lambda n: op_sequence[n:n+1]) END) AS step
    FROM families
) GROUP BY ALL ORDER BY ALL
"""

_FAMILY = pa.schema([SAMPLES.field(n) for n in ("category", "family_hash", "op_sequence")])
_DECISIONS = pa.schema([SAMPLES.field(n) for n in ("category", "family_hash", "sample", "split", "rarity", "reason")])

_SAMPLES = "SELECT * FROM decisions JOIN families USING (category, family_hash)"


@dataclass(frozen=True)
class SplitChoice:
    """What was decided: the families for evaluation, and the number of samples by split."""

    eval_families: frozenset[str]
    samples: Mapping[str, int]


def choose_samples(
    engine: Engine,
    relation: str,
    *,
    eval_fusible: int = EVAL_FUSIBLE,
    eval_typical: int = EVAL_TYPICAL,
    eval_sole_op: int = EVAL_SOLE_OP,
    max_share: float = MAX_EVAL_SHARE,
    earlier_eval: Mapping[str, str] | None = None,
    earlier_train: Set[str] = frozenset(),
    seed: int = 0,
) -> SplitChoice:
    """Groups the unique variants of a relation by category and family, and puts each group in train or eval.

    `earlier_eval` are the families that were in eval in an earlier version, by hash, with their reasons: they stay
    there, for the same reason. `earlier_train` are the hashes of those that were in train: they stay there, since
    someone may have learned from them. No family is in both splits, not even in different categories.
    `sample_batches` then yields the samples from the engine.
    """
    engine.run(_FAMILIES.format(relation=relation))
    weights = bits({(first, second): count for first, second, count in engine.run(_TRANSITIONS)})
    known = {transition: transition for transition in weights}  # one object each, however many families have it
    candidates = [
        FamilyCandidate(category, family, tuple(dict.fromkeys(known[t] for t in transitions(sequence))))
        for category, family, sequence in _families(engine)
    ]
    quotas = {"fusible": eval_fusible, "typical": eval_typical, "sole_op": eval_sole_op}
    chosen = choose(candidates, weights, quotas, max_share, earlier_eval or {}, earlier_train, seed)
    decided = pa.RecordBatchReader.from_batches(_DECISIONS, _decided(_families(engine), weights, chosen, earlier_train))
    engine.table("decisions", decided)
    counts = engine.run("SELECT split, count(*) FROM decisions GROUP BY ALL ORDER BY ALL")
    return SplitChoice(frozenset(chosen), dict(counts))


Family = tuple[str, str, list[str]]
"""Category, family hash and op sequence."""


def _families(engine: Engine) -> Iterator[Family]:
    for batch in engine.stream("FROM families ORDER BY category, family_hash", _FAMILY):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _decided(
    families: Iterator[Family], weights: Mapping[Transition, float], chosen: Mapping[str, str], learned: Set[str]
) -> Iterator[pa.RecordBatch]:
    while some := list(islice(families, 10_000)):
        rows = []
        for category, family, sequence in some:
            passed = transitions(sequence)
            row = {
                "category": category,
                "family_hash": family,
                "sample": f"{category}-{family[:12]}",
                "split": "eval" if family in chosen else "train",
                "rarity": sum(weights[t] for t in passed) / len(passed),
                "reason": chosen.get(family, LEARNED if family in learned else NOT_CHOSEN),
            }
            rows.append(row)
        yield pa.RecordBatch.from_pylist(rows, _DECISIONS)


def sample_batches(engine: Engine, split: str) -> Iterator[pa.RecordBatch]:
    """The rows of `samples` in a split, by category and family, after `choose_samples`."""
    for category in CATEGORIES:
        sql = f"{_SAMPLES} WHERE split = $split AND category = $category ORDER BY family_hash"
        yield from engine.stream(sql, SAMPLES, {"split": split, "category": category})
