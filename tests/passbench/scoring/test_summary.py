"""What is shown beside the scores: intervals, fast_p, groups of variants, several attempts."""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from passbench.score import ScoredVariant, score_table
from passbench.scoring.attempts import best_attempts, pass_at
from passbench.scoring.bootstrap import interval
from passbench.scoring.groups import GROUPINGS, SIZES, UNKNOWN, VariantFacts, group_of, group_order
from passbench.scoring.summary import FAST, summarise


def test_a_summary_in_numbers():
    outcomes = [ScoredVariant(2.0, -5), ScoredVariant(0.5, -5), ScoredVariant(1.6, 0), ScoredVariant(None, None, 2)]
    found = summarise(outcomes, ["a", "a", "b", "b"])
    assert (found.n, found.samples) == (4, 2)
    assert found.at.alpha == pytest.approx(1.0) and found.at.lam == 0.5
    assert found.fast == {0.8: 0.25, 1.0: 0.25, 1.2: 0.25, 1.5: 0.25, 2.0: 0.0}
    assert found.slower == pytest.approx(1 / 3)  # of the three with a time
    assert summarise(outcomes, ["a", "a", "b", "b"], t=0).fast[1.5] == 0.5
    assert summarise([ScoredVariant(None, None, 3)], ["a"]).slower is None
    assert list(found.table) == score_table(outcomes)


@given(st.lists(st.tuples(st.floats(0.05, 20), st.integers(-10, 1)), min_size=1, max_size=20))
def test_fast_p_falls_with_p(pairs):
    outcomes = [ScoredVariant(*pair) for pair in pairs]
    shares = list(summarise(outcomes, ["a"] * len(outcomes)).fast.values())
    assert len(shares) == len(FAST) and shares == sorted(shares, reverse=True)


def test_the_interval_holds_the_score_and_narrows_with_samples():
    generator = random.Random(1)
    logs = [generator.gauss(0, 1) for _ in range(400)]
    widths = []
    for count in (10, 100, 400):
        low, high = interval(logs[:count], [str(n) for n in range(count)])
        assert low < high
        widths.append(high / low)
    assert widths == sorted(widths, reverse=True)
    assert 1.0 < widths[-1] < 1.4  # +-1.96 / sqrt(400) in the logarithm is a ratio of e^0.196 = 1.22


def test_the_interval_draws_samples_not_variants():
    logs = [1.0, -1.0] * 20
    alone = interval(logs, [str(n) for n in range(40)])
    in_pairs = interval(logs, [str(n // 2) for n in range(40)])  # every sample has mean 0
    assert in_pairs == pytest.approx((1.0, 1.0))
    assert alone[0] < 0.9 < 1.1 < alone[1]


def test_the_interval_is_the_same_again_in_any_order():
    rows = [(random.Random(n).gauss(0, 1), f"s{n % 7}") for n in range(50)]
    expected = interval(*zip(*rows, strict=True))
    assert interval(*zip(*rows, strict=True)) == expected
    random.Random(0).shuffle(rows)
    assert interval(*zip(*rows, strict=True)) == expected
    assert interval(*zip(*rows, strict=True), seed=1) != expected


def test_one_sample_has_no_interval():
    assert interval([0.1, 0.2], ["a", "a"]) is None


def test_two_thousand_variants_take_less_than_a_second():
    outcomes = [ScoredVariant(1 + n / 1000, -5) for n in range(2000)]
    begin = time.process_time()
    summarise(outcomes, [f"s{n // 3}" for n in range(2000)])
    assert time.process_time() - begin < 1


def tensor(dtype: str, *shape: int) -> dict:
    return {"dtype": dtype, "shape": list(shape)}


@pytest.mark.parametrize(
    ("inputs", "outputs", "facts"),
    [
        ([tensor("float16", 4, 4), tensor("float32", 2)], [tensor("float16", 4, 4)], VariantFacts("float16", 16)),
        ([tensor("int64", 100), tensor("bfloat16", 8)], [tensor("bfloat16", 100, 8)], VariantFacts("bfloat16", 800)),
        ([tensor("int64", 10)], [tensor("float32", 10, 3)], VariantFacts("float32", 30)),
        ([tensor("bool", 10)], [tensor("int64", 2)], VariantFacts("bool", 10)),
        ([{"dtype": "int", "shape": None}], [tensor("float32")], VariantFacts("float32", 1)),
        ([], [tensor("int64", 3)], VariantFacts("int64", 3)),
        ([], [], VariantFacts(UNKNOWN, 0)),
    ],
)
def test_dtype_and_size_of_a_variant(inputs, outputs, facts):
    assert VariantFacts.of(inputs, outputs) == facts


def test_sizes_come_in_bands_in_order():
    edges = [0, 1023, 1024, 2**14 - 1, 2**14, 2**18 - 1, 2**18, 2**22 - 1, 2**22, 2**40]
    assert [VariantFacts("float32", n).size for n in edges] == [SIZES[i] for i in (0, 0, 1, 1, 2, 2, 3, 3, 4, 4)]
    assert SIZES == ("below 1K", "1K to 16K", "16K to 256K", "256K to 4M", "4M and more")
    assert sorted([UNKNOWN, *reversed(SIZES)], key=group_order) == [*SIZES, UNKNOWN]


def test_groups_of_a_row():
    row = {"sample": "fusible-1", "category": "fusible", "variant_hash": "h", "author": "llm", "model": "m"}
    facts = {"h": VariantFacts("float16", 5000)}
    expected = ("fusible-1", "fusible float16", "fusible", "float16", "1K to 16K", "llm m")
    assert tuple(group_of(row, by, facts) for by in GROUPINGS) == expected
    assert [group_of(row, by, {}) for by in ("dtype", "size", "group")] == [UNKNOWN, UNKNOWN, f"fusible {UNKNOWN}"]
    assert group_of(row | {"author": "distill", "model": ""}, "author", {}) == "distill"


def attempt(sample: str, number: int, variant: str, speedup: float | None, t_min: int | None = -7, **other) -> dict:
    return {
        "run": "r", "sample": sample, "attempt": number, "variant_hash": variant, "reason": "", "error_code": None,
        "status": "ok" if speedup else "timeout", "speedup_e2e": speedup, "t_min": t_min if speedup else None, **other,
    }  # fmt: skip


ATTEMPTS = [
    *(attempt("a", 1, v, s) for v, s in (("x", 4.0), ("y", None))),  # AS = sqrt(4 x 0.1) = 0.63; y fails
    *(attempt("a", 2, v, s) for v, s in (("x", 1.5), ("y", 1.2))),
    *(attempt("a", 3, v, s) for v, s in (("x", 1.2), ("y", 1.5))),  # as good as the second
    attempt("b", 1, "z", 2.0, -3),
    attempt("b", 2, "z", 1.1),
    attempt("b", 3, "z", None),
]


def test_an_attempt_succeeds_if_all_variants_are_correct():
    """At -5: a succeeds in 2 of 3 attempts, b in 1 of 3. pass@2 = (1 - 0/3 + 1 - C(2,2)/C(3,2)) / 2 = (1 + 2/3) / 2."""
    assert pass_at(ATTEMPTS) == pytest.approx({1: 0.5, 2: 5 / 6, 3: 1.0})
    assert pass_at(ATTEMPTS, t=-3)[1] == pytest.approx(2 / 3)
    assert pass_at(ATTEMPTS[:-1]) == pytest.approx({1: (2 / 3 + 1 / 2) / 2, 2: 1.0})  # b has two attempts
    assert pass_at([]) == {}


def test_variants_on_which_eager_fails_do_not_spoil_an_attempt():
    broken = attempt("a", 2, "w", None) | {"status": "runtime_error", "reason": "eager failed: no kernel"}
    assert pass_at([*ATTEMPTS, broken]) == pass_at(ATTEMPTS)


def test_the_best_attempt_is_of_the_whole_sample():
    kept = best_attempts(ATTEMPTS)
    assert [(row["sample"], row["attempt"], row["variant_hash"]) for row in kept] == [
        ("a", 2, "x"), ("a", 2, "y"), ("b", 2, "z"),
    ]  # fmt: skip


@given(st.permutations(ATTEMPTS))
def test_the_order_of_rows_does_not_choose_the_best(rows):
    assert {(r["sample"], r["attempt"]) for r in best_attempts(rows)} == {("a", 2), ("b", 2)}
