"""Which families are for evaluation: those that together cover the op transitions of the corpus, rare ones first.

Weighted coverage is submodular: a family adds less, the more is covered already. So the greedy choice is within 1 − 1/e
of the best (Nemhauser, Wolsey and Fisher 1978), and only the gain of the family that looks best needs recomputing
(Minoux 1978). Each time that a transition is covered again it counts half as much, which spreads the choice over the
corpus.
"""

import hashlib
import heapq
import math
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

Transition = tuple[str, str]

NOT_CHOSEN = "train: eval covers its op transitions with other families, or is full"
LEARNED = "train: it was in train in an earlier version"


@dataclass(frozen=True, slots=True)
class FamilyCandidate:
    """A family in one category, with the transitions of its op sequence, each once."""

    category: str
    family: str
    transitions: tuple[Transition, ...]


def transitions(sequence: Sequence[str]) -> list[Transition]:
    """Neighbouring pairs of ops; for one op alone, the pair of nothing and the op."""
    return list(pairwise(sequence)) if len(sequence) > 1 else [("", op) for op in sequence]


def bits(counts: Mapping[Transition, int]) -> dict[Transition, float]:
    """For each transition −log2 of its frequency, from how often it stands in the corpus.

    Pairs are counted among pairs, single ops among single ops.
    """
    totals = {single: sum(n for t, n in counts.items() if (t[0] == "") is single) for single in (True, False)}
    return {t: -math.log2(n / totals[t[0] == ""]) for t, n in counts.items()}


def choose(
    candidates: Sequence[FamilyCandidate],
    weights: Mapping[Transition, float],
    quotas: Mapping[str, int],
    share: float,
    earlier: Mapping[str, str],
    learned: Set[str],
    seed: int,
) -> dict[str, str]:
    """The families for evaluation, each with the reason.

    Categories are served in the order of `quotas`. A category gives at most its quota, and at most `share` of its
    families (one, if it has two). Families of `earlier` always stay, even if they are more; families of `learned` are
    not chosen, unless they are in `earlier`. A family that stands in several categories counts in each of them, and is
    not chosen if one of them is full. A hash of seed and family breaks ties.
    """
    places: dict[str, list[str]] = {}
    for candidate in candidates:
        places.setdefault(candidate.family, []).append(candidate.category)
    sizes = Counter(candidate.category for candidate in candidates)
    room = {c: min(quotas.get(c, 0), max(int(share * n), 1) if n > 1 else 0) for c, n in sizes.items()}
    chosen = {family: earlier[family] for family in places if family in earlier}
    for family in chosen:
        for category in places[family]:
            room[category] -= 1
    for category in quotas:
        used = chosen.keys() | learned
        own = [c for c in candidates if c.category == category]
        covered = Counter(t for c in own if c.family in chosen for t in c.transitions)
        queue = [(-_gain(c, weights, covered), _tie(seed, c.family), c) for c in own if c.family not in used]
        queue = [(gain, tie, number, c) for number, (gain, tie, c) in enumerate(queue)]
        heapq.heapify(queue)
        while queue and room[category] > 0:
            old, tie, number, candidate = heapq.heappop(queue)
            gain = -_gain(candidate, weights, covered)
            if gain > old:
                heapq.heappush(queue, (gain, tie, number, candidate))
            elif all(room[place] > 0 for place in places[candidate.family]):
                chosen[candidate.family] = _reason(candidate, weights, covered)
                covered.update(candidate.transitions)
                for place in places[candidate.family]:
                    room[place] -= 1
    return chosen


def _gain(candidate: FamilyCandidate, weights: Mapping[Transition, float], covered: Mapping[Transition, int]) -> float:
    return math.fsum(weights[t] * 0.5 ** min(covered[t], 1000) for t in candidate.transitions)


def _tie(seed: int, family: str) -> str:
    return hashlib.sha256(f"{seed}:{family}".encode()).hexdigest()


def _reason(candidate: FamilyCandidate, weights: Mapping[Transition, float], covered: Mapping[Transition, int]) -> str:
    new = [t for t in candidate.transitions if not covered[t]]
    rarest = max(new or candidate.transitions, key=lambda t: (weights[t], t))
    what = " → ".join(op for op in rarest if op)
    how_rare = f"{what}, one in {2 ** weights[rarest]:.0f}"
    if new:
        plural = "transition" if len(new) == 1 else "transitions"
        return f"eval: first in {candidate.category} to cover {len(new)} op {plural}, the rarest {how_rare}"
    return f"eval: covers again what few in {candidate.category} cover, the rarest {how_rare}"
