"""Which samples and variants a run takes."""

from collections import Counter
from dataclasses import replace

import pytest

from agent.run.choose import Choice, chosen, evenly, floating_dtype
from storage.records import Sample
from tests.agent.distill.families import FAMILIES
from tests.agent.support import in_dtype, variant
from tests.support.stores import publish_samples

DTYPES = ("float32", "float32", "float16")


@pytest.fixture(scope="module")
def version(tmp_path_factory):
    """Four samples of three variants, the last of them in the training split."""
    family, samples = FAMILIES["add_relu"], []
    for name in "abcd":
        variants = tuple(
            variant(family.function, *in_dtype(family.inputs, dtype)).with_changes(variant_hash=f"{name}{n}")
            for n, dtype in enumerate(DTYPES)
        )
        samples.append(Sample(f"fusible-{name}", name, "fusible", "train" if name == "d" else "eval", variants))
    return publish_samples(samples, tmp_path_factory.mktemp("choose") / "data")


def names(version, **given) -> str:
    return "".join(sample.family_hash for sample in chosen(version, Choice(**given)))


def test_splits_names_limits_and_parts(version):
    assert names(version) == "abc"
    assert names(version, splits=("eval", "train")) == "abcd"
    assert names(version, splits=("eval", "train"), limit=2) == "ab"
    assert names(version, names=frozenset({"fusible-c"}), limit=1) == "c"
    assert names(version, splits=("eval", "train"), each=1) == "a"
    assert names(version, variants=4) == "ab"
    assert [names(version, part=(n, 2)) for n in range(2)] == ["ac", "b"]


def test_variants_of_a_sample(version):
    one, *_ = chosen(version, Choice(one_a_dtype=True))
    assert [v.variant_hash for v in one.variants] == ["a0", "a2"]
    assert [floating_dtype(v) for v in one.variants] == ["float32", "float16"]
    one, *_ = chosen(version, Choice(at_most=1))
    assert [v.variant_hash for v in one.variants] == ["a0"]
    assert evenly(tuple(range(9)), 3) == (0, 3, 6)


def test_a_mixed_order_has_every_category_in_proportion(version, tmp_path):
    one = chosen(version, Choice(limit=1))[0]
    samples = [
        replace(one, sample=f"{category}-{n}", family_hash=f"{category[0]}{n}", category=category)
        for category, count in (("fusible", 6), ("typical", 3), ("sole_op", 2))
        for n in range(count)
    ]
    other = publish_samples(samples, tmp_path / "data")
    order = [s.category[0] for s in chosen(other, Choice(mixed=True))]
    assert sorted(order) == sorted("ffffffttts" + "s")
    assert Counter(order[:6]) == {"f": 3, "t": 2, "s": 1}
