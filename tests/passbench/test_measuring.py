"""What benchmarks/passbench makes of samples and of rows."""

import pytest

from benchmarks.passbench import eager_as_pass
from benchmarks.passbench.merge_runs import common
from benchmarks.passbench.repeat_runs import compared, host_speeds
from passbench.bench import bench
from passbench.settings import Settings
from tests.passbench.samples import add_relu_sample, sample, spec, variant

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
