import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.hashes import identify
from dedup.unique import MAX_SOURCES, unique
from storage.graph import Graph, Op, Ref
from storage.records import Input, Source, Variant


def _variant(size: int, source: Source, category: str = "sole_op", std: float = 1.0) -> Variant:
    graph = Graph(1, (Op("function", "torch.relu", (Ref(0),), {}),), (Ref(1),))
    inputs = (Input("x", "input", "float32", (size,), (1,), mean=0.0, std=std),)
    return identify(Variant(category, graph, inputs, (), (source,)))


places = st.builds(Source, st.sampled_from(["a", "b"]), st.integers(0, 40), st.just(50))
variants = st.builds(_variant, st.integers(1, 3), places, st.sampled_from(["sole_op", "typical"]), st.just(1.0))


@given(st.lists(variants, max_size=40), st.randoms(use_true_random=False))
def test_each_once_whatever_the_order(given_: list[Variant], shuffler: random.Random) -> None:
    result = unique(given_)
    keys = {(v.category, v.variant_hash) for v in given_}
    assert len(result.variants) == len(keys)
    assert sum(v.occurrences for v in result.variants) == len(given_)
    assert result.duplicates.total() == len(given_) - len(keys)
    shuffled = list(given_)
    shuffler.shuffle(shuffled)
    assert unique(shuffled).variants == result.variants
    assert unique(result.variants).variants == result.variants


def test_sources_are_bounded_and_the_first_decides() -> None:
    many = [_variant(1, Source("m", start, start + 1), std=start) for start in reversed(range(40))]
    (merged,) = unique(many).variants
    assert merged.occurrences == 40
    assert [s.start for s in merged.sources] == list(range(MAX_SOURCES))
    assert merged.inputs[0].std == 0


def test_a_variant_without_hash_is_refused() -> None:
    with pytest.raises(ValueError, match="identify"):
        unique([_variant(1, Source("m", 0, 1)).with_changes(variant_hash="")])
