"""Which samples of a version a run takes, and which of their variants."""

from collections import Counter
from dataclasses import dataclass, replace

from passbench.scoring.groups import VariantFacts
from storage.records import Sample, Variant
from storage.schema import CATEGORIES
from storage.versions.samples import load_samples
from storage.versions.version import Version


@dataclass(frozen=True)
class Choice:
    """What to take: `splits` and `categories`; `names` of samples, all if None; at most `limit` samples, `each` of a
    category, and none after `variants` variants; of a sample the first variant of each dtype alone (`one_a_dtype`), or
    `at_most` variants, spread over all; `part` I of N parts, numbered from 0. `mixed`: in an order in which every
    beginning has samples of each category in proportion; else category by category.
    """

    splits: tuple[str, ...] = ("eval",)
    categories: tuple[str, ...] = CATEGORIES
    names: frozenset[str] | None = None
    limit: int | None = None
    each: int | None = None
    variants: int | None = None
    one_a_dtype: bool = False
    at_most: int | None = None
    part: tuple[int, int] = (0, 1)
    mixed: bool = False


def chosen(version: Version, choice: Choice) -> list[Sample]:
    """The samples to run, in the order of the version unless `mixed`. Limits count before that and before the parts are
    taken."""
    samples: list[Sample] = []
    taken: Counter[str] = Counter()
    variants = 0
    for split in choice.splits:
        for sample in load_samples(version, split, choice.categories, _named(version, split, choice)):
            full = choice.variants is not None and variants >= choice.variants
            if full or (choice.limit is not None and len(samples) >= choice.limit):
                break
            if choice.each is not None and taken[sample.category] >= choice.each:
                continue
            taken[sample.category] += 1
            samples.append(replace(sample, variants=_variants(sample, choice)))
            variants += len(samples[-1].variants)
    if choice.mixed:
        samples = _mixed(samples)
    number, count = choice.part
    return samples[number::count]


def _named(version: Version, split: str, choice: Choice) -> list[str] | None:
    """The samples of a split that are named; None if all are wanted. No others are read."""
    if choice.names is None:
        return None
    rows = version.table("samples", split).select(["sample", "category"]).to_pylist()
    return [row["sample"] for row in rows if row["sample"] in choice.names and row["category"] in choice.categories]


def _mixed(samples: list[Sample]) -> list[Sample]:
    """The samples in the order of how much of their category comes before them."""
    size = Counter(sample.category for sample in samples)
    before: Counter[str] = Counter()
    share = []
    for sample in samples:
        share.append(before[sample.category] / size[sample.category])
        before[sample.category] += 1
    return [samples[n] for n in sorted(range(len(samples)), key=share.__getitem__)]


def _variants(sample: Sample, choice: Choice) -> tuple[Variant, ...]:
    variants = sample.variants
    if choice.one_a_dtype:
        first = {floating_dtype(v): v for v in reversed(variants)}
        variants = tuple(v for v in variants if v in first.values())
    return variants if choice.at_most is None else evenly(variants, choice.at_most)


def evenly(variants: tuple[Variant, ...], count: int) -> tuple[Variant, ...]:
    """At most `count` of the variants, in order and evenly spaced."""
    return tuple(variants[i * len(variants) // count] for i in range(count)) if len(variants) > count else variants


def floating_dtype(variant: Variant) -> str:
    """What a variant computes in, as scores are grouped; "" for all that is not floating: one kind."""
    dtype = VariantFacts.of([vars(x) for x in variant.inputs], ()).dtype
    return dtype if "float" in dtype else ""
