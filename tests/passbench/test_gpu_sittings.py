"""What a call on a GPU host leaves when it ends early, and that a later call goes on with it."""

import os
import subprocess
import sys
from pathlib import Path

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
