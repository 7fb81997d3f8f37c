"""Variants → samples: one task a family and category, with its split."""

from collections.abc import Iterable, Mapping

from dedup.splits import NOT_CHOSEN, Candidate, bits, choose, transitions
from storage.records import Sample, Variant
from storage.schema import CATEGORIES

EVAL_FUSIBLE = 200
EVAL_TYPICAL = 200
EVAL_SOLE_OP = 40
MAX_EVAL_SHARE = 0.2


def make_samples(
    variants: Iterable[Variant],
    *,
    eval_fusible: int = EVAL_FUSIBLE,
    eval_typical: int = EVAL_TYPICAL,
    eval_sole_op: int = EVAL_SOLE_OP,
    max_share: float = MAX_EVAL_SHARE,
    earlier_eval: Mapping[str, str] | None = None,
    seed: int = 0,
) -> list[Sample]:
    """The samples of unique variants, by category and family hash, each in train or eval.

    `earlier_eval` are the families that were in eval in an earlier version, by hash, with their reasons: they stay
    there, for the same reason. No family is in both splits, also not in different categories. Raises ValueError on a
    variant without hashes.
    """
    families: dict[tuple[str, str], list[Variant]] = {}
    for variant in variants:
        if not variant.family_hash:
            raise ValueError("a variant has no hash; identify it first")
        families.setdefault((variant.category, variant.family_hash), []).append(variant)
    rank = {category: number for number, category in enumerate(CATEGORIES)}
    keys = sorted(families, key=lambda key: (rank[key[0]], key[1]))
    sequences = {key: families[key][0].graph.op_sequence for key in keys}
    weights = bits((sequences[key], sum(v.occurrences for v in families[key])) for key in keys)
    candidates = [Candidate(*key, frozenset(transitions(sequences[key]))) for key in keys]
    quotas = {"fusible": eval_fusible, "typical": eval_typical, "sole_op": eval_sole_op}
    chosen = choose(candidates, weights, quotas, max_share, earlier_eval or {}, seed)
    samples = []
    for category, family in keys:
        passed = transitions(sequences[category, family])
        samples.append(
            Sample(
                sample=f"{category}-{family[:12]}",
                family_hash=family,
                category=category,
                split="eval" if family in chosen else "train",
                variants=tuple(sorted(families[category, family], key=lambda v: v.variant_hash)),
                rarity=sum(weights[t] for t in passed) / len(passed),
                reason=chosen.get(family, NOT_CHOSEN),
            )
        )
    return samples
