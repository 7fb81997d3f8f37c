import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dedup.hashes import identify
from dedup.splits import LEARNED, bits, transitions
from storage.graph.record import Graph, Op, Ref
from storage.records import Input, Variant
from tests.support.in_memory import make_samples

OPS = ["torch.relu", "torch.exp", "torch.tanh", "torch.abs", "torch.sin", "torch.cos"]


def _variant(names: list[str], category: str, dtype: str = "float32", occurrences: int = 1) -> Variant:
    ops = tuple(Op("function", name, (Ref(n),), {}) for n, name in enumerate(names))
    inputs = (Input("x", "input", dtype, (4,), (1,)),)
    variant = Variant(category, Graph(1, ops, (Ref(len(ops)),)), inputs, (), occurrences=occurrences)
    return identify(variant)


corpora = st.lists(
    st.builds(
        _variant,
        st.lists(st.sampled_from(OPS), min_size=1, max_size=4),
        st.sampled_from(["sole_op", "fusible", "typical"]),
        st.sampled_from(["float32", "float16"]),
        st.integers(1, 20),
    ),
    min_size=1,
    max_size=40,
    unique_by=lambda v: (v.category, v.variant_hash),
)


@given(corpora, st.integers(0, 3))
@settings(max_examples=10)
def test_splits_do_not_leak_and_keep_their_bounds(variants: list[Variant], seed: int) -> None:
    samples = make_samples(variants, eval_fusible=3, eval_typical=2, eval_sole_op=1, seed=seed)
    assert sorted(v.variant_hash for s in samples for v in s.variants) == sorted(v.variant_hash for v in variants)
    sides = {split: {s.family_hash for s in samples if s.split == split} for split in ("train", "eval")}
    assert not sides["train"] & sides["eval"]
    for category, quota in (("fusible", 3), ("typical", 2), ("sole_op", 1)):
        own = [s for s in samples if s.category == category]
        chosen = [s for s in own if s.split == "eval"]
        assert len(chosen) <= min(quota, max(1, 0.2 * len(own)))
    assert len({s.sample for s in samples}) == len(samples)
    assert all(s.reason.startswith(s.split) and s.rarity >= 0 for s in samples)


@given(corpora, corpora)
@settings(max_examples=10)
def test_families_stay_in_the_splits_of_an_earlier_version(before: list[Variant], added: list[Variant]) -> None:
    first = make_samples(before)
    earlier = {s.family_hash: s.reason for s in first if s.split == "eval"}
    known = {(v.category, v.variant_hash) for v in before}
    grown = before + [v for v in added if (v.category, v.variant_hash) not in known]
    learned = frozenset(s.family_hash for s in first if s.split == "train")
    samples = make_samples(grown, earlier_eval=earlier, earlier_train=learned)
    assert earlier.keys() <= {s.family_hash for s in samples if s.split == "eval"}
    assert learned <= {s.family_hash for s in samples if s.split == "train"}
    assert all(s.reason == LEARNED for s in samples if s.family_hash in learned)
    assert all(s.reason == earlier[s.family_hash] for s in samples if s.family_hash in earlier)


@given(corpora, st.randoms(use_true_random=False))
@settings(max_examples=10)
def test_the_order_of_variants_does_not_matter(variants: list[Variant], shuffler) -> None:
    shuffled = list(variants)
    shuffler.shuffle(shuffled)
    assert make_samples(shuffled) == make_samples(variants)


def test_rare_transitions_come_first() -> None:
    common = [_variant(["torch.relu", "torch.exp", name], "fusible", occurrences=50) for name in OPS]
    rare = _variant(["torch.sin", "torch.cos"], "fusible")
    chosen = [s for s in make_samples([*common, rare], eval_fusible=1) if s.split == "eval"]
    assert [s.variants[0].graph.op_sequence for s in chosen] == [["torch.sin", "torch.cos"]]
    assert "torch.sin → torch.cos" in chosen[0].reason


def test_rarity_is_the_mean_information_of_the_transitions() -> None:
    weights = bits({("a", "b"): 4, ("b", "c"): 3, ("", "a"): 4})
    assert weights[("a", "b")] == pytest.approx(-math.log2(4 / 7))
    assert weights[("b", "c")] == pytest.approx(-math.log2(3 / 7))
    assert weights[("", "a")] == 0
    assert transitions(["a"]) == [("", "a")]
    variants = [_variant(OPS[:3], "typical", occurrences=3), _variant(OPS[:2], "typical")]
    rarities = {len(s.variants[0].graph.ops): s.rarity for s in make_samples(variants)}
    assert rarities[3] == pytest.approx(-(math.log2(4 / 7) + math.log2(3 / 7)) / 2)


def chosen() -> str:
    """A line for each sample of many."""
    variants = [_variant(list(names), "fusible") for names in itertools.permutations(OPS, 3)]
    made = make_samples(variants, eval_fusible=9, seed=5)
    return "\n".join(f"{s.sample} {s.split} {s.rarity} {s.reason}" for s in made)
