"""What stands beside a table of speeds."""

import pyarrow as pa
import pyarrow.parquet as pq

from passbench import compilers
from passbench.conditions import conditions
from passbench.names import COMPILERS
from passbench.result import Times, Timing, VariantResult
from storage.schema import RESULTS, SCORES
from storage.versions.shards import LIMITS, read_shard, write_split

NEW = ("device_method", "device_note", "numerics", "seed", "commit", "busy", "hardware")


def timing(clock: str, noisy: bool = False) -> Timing:
    return Timing(clock, 2.0, 1.0, 0.1, 0.1, 100, 0, noisy, 1.9, 2.1)


def result(method: str | None, *, noisy: bool = False) -> dict:
    times = Times((timing("e2e", noisy), timing("device")), method, "")
    one = VariantResult("s", "fusible", "v", "inductor-strict", "ok", times=times, device="GPU X", numerics="strict")
    return one.to_row(run="r", author="a")


def test_conditions_name_the_gpu_the_versions_the_numerics_and_the_noise():
    rows = [result("graph"), result("graph", noisy=True), result("kernels"), result("graph")]
    e2e, device = conditions(rows, "e2e"), conditions(rows, "device")
    assert (e2e.gpu, e2e.numerics, e2e.noisy_share, e2e.from_kernels) == ("GPU X", "strict", 0.25, 0.0)
    assert (device.noisy_share, device.from_kernels) == (0.0, 0.25)
    text = str(device)
    assert text.startswith("GPU X, torch 2") and "triton" in text and text.endswith("0% noisy, 25% timed by kernels")
    assert set(e2e._fields) <= set(SCORES.names)


def test_rows_of_earlier_versions_say_less(tmp_path):
    table = pa.Table.from_pylist([result("graph")], RESULTS)
    (shard,) = write_split(table, "results", "all", tmp_path, LIMITS)
    path = tmp_path / shard.path
    pq.write_table(pq.read_table(path).drop_columns(list(NEW)), path)
    (batch,) = read_shard(path, "results")
    (row,) = batch.to_pylist()
    assert all(row[name] is None for name in NEW)
    assert row["libraries"] and row["variant_hash"] == "v"
    found = conditions([row], "device")
    assert (found.gpu, found.numerics, found.from_kernels, found.noisy_share) == ("GPU X", "", None, 0.0)
    assert str(conditions([{}], "e2e")) == "an unknown device"


def test_strict_baselines_have_options_that_torch_knows():
    import torch._inductor.config as config

    with config.patch(compilers.strict_options()):
        assert getattr(config, "numerics", None) == "strict" or (
            config.emulate_precision_casts and config.eager_numerics.division_rounding
        )
    modes = {name: compilers.numerics(name) for name in COMPILERS}
    assert modes["pass"] is modes["eager"] is None
    assert {n for n, mode in modes.items() if mode == "strict"} == {"inductor-strict", "inductor-strict-direct"}
