"""What the script for GPU hosts makes of what its steps have left."""

import os

import pyarrow as pa
import pyarrow.parquet as pq

from tests.passbench.attacks.attack_table import ATTACKS
from tests.passbench.gpu_session import _run, _shares, _verdicts, against_itself


def test_steps_run_side_by_side_and_are_ended(tmp_path):
    statuses, said = _run("step", tmp_path, [["-c", "print('done')"], ["-c", "import time; time.sleep(60)"]], 2)
    assert statuses == [0, None]
    assert "done" in said


def test_steps_share_cores_and_gpus(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(9)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    shares = _shares(4)
    assert [cores for cores, _ in shares] == [{0, 1}, {2, 3}, {4, 5}, {6, 7}]
    assert [environment["CUDA_VISIBLE_DEVICES"] for _, environment in shares] == ["3", "5", "3", "5"]
    assert [cores for cores, _ in _shares(5)] == [set(range(9))] * 5


def test_verdicts_of_several_processes():
    two, one = (attack.name for attack in ATTACKS[:2])
    said = [f"{two}   static_policy   ok   ", "a warning", f"{two}   wrong   differs", "2 verdicts, 0 unexpected; 3 s"]
    said += ["4 trials were not begun within 3 s", f"{one}   ok     EXPECTED comparison: wrong"]  # no total: was ended
    assert _verdicts("\n".join(said)).splitlines() == [
        "3 verdicts of 2 passes, 1 unexpected",
        "4 trials were not begun within 3 s",
        f"{one} ok EXPECTED comparison: wrong",
    ]


def timing(clock: str, speedup: float, candidate: float) -> dict:
    width = {"speedup_low": speedup - 0.02, "speedup_high": speedup + 0.02, "noisy": False}
    return {"clock": clock, "eager_us": candidate * speedup, "candidate_us": candidate} | width


def test_shares_of_eager_against_itself(tmp_path):
    assert against_itself(tmp_path) == "no variant was measured"
    (tmp_path / "aa").mkdir()
    found = [(1.0, 1.0), (1.009, 1.001), (0.999, 1.1), (0.99, 1.0), (9.0, 9.0)]
    timings = [[timing("e2e", a, 90.0), timing("device", b, 10.0)] for a, b in found]
    rows = {"author": ["eager"] * 5, "status": ["ok"] * 4 + ["wrong"], "seconds": [2.5] + [0.5] * 4, "timings": timings}
    phases = pa.array([[("draw", 0.1), ("compare", 0.02)]] * 5, pa.map_(pa.string(), pa.float64()))
    eager = pa.table({**rows, "phases": phases})
    passes = eager.slice(2, 1).set_column(0, "author", [["pass"]])
    pq.write_table(pa.concat_tables([eager, passes]), tmp_path / "aa" / "results.parquet")
    eager, _, passes = against_itself(tmp_path).partition("### A pass that repeats eager's calls\n\n")
    assert passes.splitlines()[-2] == "e2e: 100.0% within 3%, geometric mean 0.9990; 95 % and 0.5 %: met"
    assert passes.splitlines()[-1] == "device: 0.0% within 2%, geometric mean 1.1000; 95 % and 0.5 %: not met"
    assert eager.startswith("### Eager against itself\n\n")
    said = eager.strip().splitlines()[2:]
    assert said[0] == "5 variants, 67 a minute of their own time, 120 without the first"
    assert said[1] == "not timed: wrong, 1"
    assert said[2] == "milliseconds each: draw 100, compare 20"
    assert "| e2e | 60 to 200 us | 4 | 0.9995 | 75%, 100%, 100% | 2.00% | 0% |" in said
    assert said[-2] == "e2e: 100.0% within 3%, geometric mean 0.9995; 95 % and 0.5 %: met"
    assert said[-1] == "device: 75.0% within 2%, geometric mean 1.0244; 95 % and 0.5 %: not met"
