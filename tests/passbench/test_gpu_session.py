"""What the script for GPU hosts makes of what its steps have left."""

import pandas as pd

from tests.passbench.gpu_session import _against_itself, _run, _verdicts


def test_steps_run_side_by_side_and_are_ended(tmp_path):
    statuses, said = _run("step", tmp_path, [["-c", "print('done')"], ["-c", "import time; time.sleep(60)"]], 5)
    assert statuses == [0, None]
    assert "done" in said


def test_verdicts_of_several_processes():
    said = "7 verdicts, 0 unexpected; 3 s; torch 2\n9 verdicts, 1 unexpected; 4 s\nUNEXPECTED odd without []: ok\n"
    assert _verdicts(said).splitlines() == ["16 verdicts, 1 unexpected", "UNEXPECTED odd without []: ok"]


def test_shares_of_eager_against_itself(tmp_path):
    assert _against_itself(tmp_path) == "no variant was measured"
    directory = tmp_path / "aa" / "runs" / "eager-1"
    directory.mkdir(parents=True)
    rows = {"status": ["ok"] * 4 + ["wrong"], "seconds": [0.5] * 5}
    speedups = {"speedup_e2e": [1.0, 1.01, 0.98, 1.02, 9.0], "speedup_device": [1.0, 1.001, None, 1.1, None]}
    pd.DataFrame({**rows, **speedups}).to_parquet(directory / "s.parquet")
    first, e2e, device = _against_itself(tmp_path).splitlines()
    assert first == "5 variants, 120 a minute of their own time"
    assert "100.0% within 3%" in e2e and e2e.endswith("95 % within 3%: met")
    assert "66.7% within 2%" in device and device.endswith("95 % within 2%: not met")
