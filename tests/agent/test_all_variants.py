"""Which variants a pass has no plan for, and what is said of results."""

from benchmarks.agent.all_variants import others, summary
from tests.agent.support import sample, tensor, variant


def _scaled(x):
    return x * 2.0


def test_variants_of_the_same_graph_without_a_plan():
    same = [variant(_scaled, tensor(length)) for length in (4, 8, 16, 32)]
    every = [*same, variant(lambda x: x * 3.0, tensor(4))]
    one = sample(*(v.with_changes(variant_hash=str(n)) for n, v in enumerate(every)))
    known = {one.sample: {"variant_hash": one.variants[1].variant_hash}}
    (found,) = others([one], known, 40, 5)
    assert [v.inputs[0].shape for v in found.variants] == [(4,), (16,), (32,)], "none of other constants"
    assert [len(s.variants) for s in others([one], known, 40, 2)] == [2]
    assert others([one], {}, 40, 5) == []


def test_a_summary_counts_what_is_right_and_names_what_is_not():
    row = {"sample": "a", "variant_hash": "v", "reason": "", "speedup_e2e": 0.96, "speedup_device": None}
    text = summary([{**row, "status": "ok", "t_min": -5}, {**row, "status": "ok", "t_min": -4}], 2)
    assert "2 variants of 1 samples (2 asked for): 2 ok; right at -5: 1" in text
    assert "e2e: median 0.960 of eager's speed; of 2 2 below 0.97, 0 below 0.95" in text
    assert "a v: ok -4" in text and "device" not in text
