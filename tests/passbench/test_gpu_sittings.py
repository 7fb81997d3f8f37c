"""What a call on a GPU host leaves when it ends early, and that a later call goes on with it."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pandas as pd

from benchmarks.passbench.gpu_sittings import tables
from benchmarks.passbench.gpu_sittings.__main__ import sections, unpacked
from storage.parquet import read_rows, write_rows
from storage.schema import RESULTS
from tests.passbench.attacks import run_attacks

ROOT = Path(__file__).parents[2]
TABLE = "benchmarks/passbench/h200_table/call.sh"


def call(*command: str, **environment: str) -> subprocess.CompletedProcess:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    given = os.environ | {"PATH": path, "NO_GPU_TEST": "1", "SECONDS_LEFT": "1"} | environment
    return subprocess.run(["bash", *command], cwd=ROOT, env=given, capture_output=True, text=True, timeout=60)


def test_a_table_that_is_too_large_for_one_file_comes_back_in_parts(tmp_path):
    first, later = tmp_path / "first", tmp_path / "later"
    tuned = first / "record" / "tuned" / "cache.txz"
    tuned.parent.mkdir(parents=True)
    tuned.write_bytes(os.urandom(3 << 20))
    call(TABLE, str(tmp_path / "out"), WORK=str(first), PART_MB="1")
    left = sorted(file.name for file in (tmp_path / "out").iterdir() if file.name.startswith("table.tgz"))
    assert left == [f"table.tgz.0{number}" for number in range(4)]
    call(TABLE, str(tmp_path / "out_2"), str(tmp_path / "out" / "table.tgz"), WORK=str(later))
    assert (later / "record" / "tuned" / "cache.txz").read_bytes() == tuned.read_bytes()
    assert [file.name for file in (tmp_path / "out_2").iterdir() if "tgz" in file.name] == ["table.tgz"]


def test_a_table_that_cannot_be_gone_on_with_is_not_begun_anew(tmp_path):
    done = call(TABLE, str(tmp_path / "out"), str(tmp_path / "missing.tgz"), WORK=str(tmp_path / "work"))
    assert done.returncode == 1 and not (tmp_path / "out" / "table.tgz").exists()


def test_tables_are_those_of_the_records_page():
    record = ROOT / "benchmarks" / "agent" / "h100_all_variants"
    page, found = (record / "README.md").read_text("utf-8"), dict(sections(record, Path()))
    assert list(found) == ["All variants", "Shapes without a plan"]
    rows = [line for table in found.values() for line in table.splitlines()[2:]]
    assert len(rows) == 6 and all(row in page for row in rows)


def test_a_table_is_found_in_parts_of_an_archive(tmp_path):
    table = ROOT / "benchmarks" / "passbench" / "h100_table" / "results.parquet"
    with tarfile.open(tmp_path / "whole", "w:gz") as archive:
        archive.add(table, "results.parquet")
    data = (tmp_path / "whole").read_bytes()
    (tmp_path / "table.tgz.00").write_bytes(data[:1000])
    (tmp_path / "table.tgz.01").write_bytes(data[1000:])
    assert (unpacked(tmp_path / "table.tgz", tmp_path / "place") / "results.parquet").read_bytes() == table.read_bytes()
    assert unpacked(tmp_path / "all.tgz", tmp_path / "none") is None


def test_a_log_that_was_cut_off_says_how_many_passed(tmp_path):
    log = tmp_path / "tests.log"
    log.write_text("a.py::one PASSED [ 1%]\na.py::two PASSED\na.py::three FAILED\nE   assert 1 == 2\na.py::fo")
    assert tables.log(log).splitlines() == ["2 passed", "a.py::three FAILED", "E   assert 1 == 2"]
    log.write_text("[gw0] [ 10%] PASSED a.py::one \n[gw1] [ 12%] FAILED a.py::two")
    assert tables.log(log).splitlines() == ["1 passed", "[gw1] [ 12%] FAILED a.py::two"]
    log.write_text(
        "noise\n9 verdicts, 1 unexpected; 5 s\nx   static_policy   ok   EXPECTED comparison\nexit 1 after 3 s"
    )
    assert len(tables.log(log).splitlines()) == 3


def test_verdicts_are_added_up_by_part(tmp_path):
    rows = [("a", "", True), ("a", "static_policy", False)]
    table = pd.DataFrame(rows, columns=["name", "off", "ok"]).assign(status="ok", reason="r", expected="wrong")
    for number in range(2):
        (tmp_path / f"new-{number}").mkdir()
        table.to_parquet(tmp_path / f"new-{number}" / "attacks-cuda.parquet")
    found = tables.verdicts(sorted(tmp_path.rglob("*.parquet"))).splitlines()
    assert found[2] == "| new | 4 | 1 | 2 | 2 |"
    assert found[-1] == "- a without [static_policy]: ok r; expected wrong"


def test_rows_of_both_ways_become_a_line_a_clock(tmp_path):
    rows = read_rows(ROOT / "benchmarks" / "passbench" / "h100_table" / "results.parquet", RESULTS)
    timed = {row["author"]: row for row in rows if row["sample"] == rows[0]["sample"]}
    runs = {"shared-eager": "eager", "shared-distill": "distill", "passnet-distill": "distill"}
    write_rows(tmp_path / "both.parquet", [timed[author] | {"run": run} for run, author in runs.items()], RESULTS)
    lines = tables.both_ways(tmp_path / "both.parquet").splitlines()
    assert [line.split(" | ")[1] for line in lines[2:4]] == ["e2e", "device"]
    assert lines[-2:] == ["e2e: shared over whole 1.000, 1 passes", "device: shared over whole 1.000, 1 passes"]


def test_an_unknown_step_is_refused(tmp_path):
    done = call("benchmarks/passbench/gpu_sittings/call.sh", "nothing", str(tmp_path / "out"))
    assert done.returncode == 2 and "no step nothing" in done.stderr


def test_attacks_leave_a_record_before_they_have_ended(tmp_path, monkeypatch):
    trial = next(one for one in run_attacks.trials("cpu", honest=False) if not one.off)
    monkeypatch.setattr(run_attacks, "_RECORDED_EVERY", 0.0)
    table = run_attacks.run_all("cpu", [(0, trial)], out=tmp_path)
    assert pd.read_parquet(tmp_path / "attacks-cpu.parquet")["name"].tolist() == table["name"].tolist() == [trial.name]
