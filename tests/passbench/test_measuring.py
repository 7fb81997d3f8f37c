"""What benchmarks/passbench makes of samples and of rows."""

from pathlib import Path

import pytest

from benchmarks.passbench import eager_as_pass
from benchmarks.passbench.compared import text_of
from benchmarks.passbench.merge_runs import common
from benchmarks.passbench.repeat_runs import compared, host_speeds
from benchmarks.passbench.unseen import drawn, named
from passbench.bench import bench
from passbench.names import CLOCKS
from passbench.result import Times, Timing, VariantResult
from passbench.settings import Settings
from storage.versions.version import Version
from tests.passbench.samples import add_relu_sample, sample, spec, variant

VERSION = Path(__file__).parents[2] / "benchmarks/extraction/corpus_578/version"
ONCE = Settings(draws=1, calls=2, batch=2, warmup=2, repeats=0, double=False)


def test_a_pass_that_repeats_eager(tmp_path):
    one = add_relu_sample((3, 40), (8, 5))
    assert eager_as_pass.write(one, tmp_path / "pass")
    for result in bench(one, "pass", tmp_path / "pass", settings=ONCE):
        assert (result.status, result.t_min, result.matches) == ("ok", -10, 1), result.reason
        assert result.library_ops == ("aten.add", "aten.mul", "aten.relu")


def test_no_pass_repeats_a_write_to_an_input(tmp_path):
    def adds_in_place(x, y):
        x += y
        return (x,)

    inputs = spec("x", 3, 40), spec("y", 3, 40)
    assert not eager_as_pass.write(sample(variant(adds_in_place, *inputs)), tmp_path / "pass")
    assert not (tmp_path / "pass").exists()


def test_rows_in_common_are_of_the_same_variants():
    rows = [
        {"author": author, "sample": "s", "variant_hash": variant_hash, "number": number}
        for number, (author, variant_hash) in enumerate([("a", "v"), ("a", "w"), ("b", "w"), ("b", "w"), ("b", "x")])
    ]
    found = {author: [row["number"] for row in some] for author, some in common(rows).items()}
    assert found == {"a": [1], "b": [2]}


def row(author: str, variant_hash: str, speedup: float) -> dict:
    timed = {"speedup_e2e": speedup, "speedup_device": None, "times_meaningful": True, "device_method": None}
    return {"author": author, "variant_hash": variant_hash, "status": "ok", "error_code": None, "t_min": -10, **timed}


def test_runs_are_compared_on_what_all_have():
    first = [row("a", "v", 2.0), row("a", "w", 8.0), row("a", "x", 99.0)]
    second = [row("a", "v", 2.0), row("a", "w", 8.0 * 1.0404)]
    line = compared([first, second]).splitlines()[2]
    assert line == "| a | e2e | 2 | 4.0000, 4.0800 | +2.00% | 2.02%, 4.04% |"


@pytest.mark.parametrize("count", [3, 40])
def test_the_spread_of_two_runs(count):
    first = [row("a", f"v{n}", 1.0) for n in range(count)]
    second = [row("a", f"v{n}", 1.0 + n / 1000) for n in range(count)]
    line = compared([first, second]).splitlines()[2]
    assert line.endswith({3: "0.10%, 0.20% |", 40: "1.95%, 3.70% |"}[count])


def test_how_fast_the_host_was_in_each_run():
    slow = [{"surroundings": {"host_us": "300 → 320"}}, {"surroundings": {"host_us": "310"}}]
    fast = [{"surroundings": {"host_us": "250"}}]
    assert "310, 250 us" in host_speeds([slow, fast])
    assert host_speeds([slow, [{"surroundings": None}]]) == ""


def _row(number: int, author: str, speedup: float, t_min: int = -10, reason: str = "") -> dict:
    timings = tuple(Timing(clock, speedup, 1.0, 0.0, 0.0, 100, 0, False, speedup, speedup) for clock in CLOCKS)
    result = VariantResult(
        f"fusible-{number}", "fusible", f"v{number}", author, "ok", reason, None, t_min, times=Times(timings, "graph")
    )
    return result.to_row(run="r", author=author)


def test_the_table_says_what_is_left_to_eager_and_how_far_the_author_is_from_torchinductor():
    rows = [_row(number, "inductor-strict-direct", 2.0, -5 + number) for number in range(2)]
    rows += [_row(number, "inductor-direct", 4.0, -3) for number in range(2)]
    rows += [_row(number, "eager", 1.0) for number in range(2)]
    rows += [_row(0, "distill", 3.0), _row(1, "distill", 1.0, reason="left to eager: too slow")]
    text = text_of(rows, [_row(0, "distill", 2.5)])
    assert "| fusible | 2 | 1 (50%) | 2 | 1.732 | 1.732 | 3.000 (1) | 3.000 (1) | 0, 0 |" in text
    beside = "| 2 | 1 | 1.732 (2) | 2.000 (2) | 4.000 (2) | 0.866 (2) | 1.000 | 1.500 (1) | 0.433 (2) | 1.500 (1) |"
    assert f"| fusible {beside}" in text
    without = text_of([row for row in rows if (row["author"], row["sample"]) != ("inductor-direct", "fusible-0")], [])
    beside = "| 2 | 1 | 1.732 (2) | 2.000 (2) | 4.000 (1) | 0.866 (2) | 1.000 | 1.500 (1) | 0.612 (2) | 1.500 (1) |"
    assert f"| fusible {beside}" in without, "a sample in which default failed counts over strict"
    assert "| distill | device | 1 | 1.2000 | 18.23% | 18.23% |" in text and "{'the same': 1}" in text
    assert text_of([], []) == "There are no rows.\n"


def test_samples_of_families_that_a_record_names_are_not_drawn(tmp_path):
    samples = [row for row in Version.open(VERSION).table("samples").to_pylist() if row["category"] == "sole_op"]
    one, two, *others = samples
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text(f"`{one['family_hash'][:12]}` and {two['sample']}", "utf-8")
    out, late = named(tmp_path)
    assert (out, late) == ({row["family_hash"][:12] for row in (one, two)}, set())
    late = {others[0]["family_hash"][:12]}
    names = drawn([VERSION], {"sole_op": len(samples)}, 2, 7, out, late)
    assert sorted(names) == sorted(row["sample"] for row in others)
    assert others[0]["sample"] not in drawn([VERSION], {"sole_op": len(others) - 1}, 2, 7, out, late)
