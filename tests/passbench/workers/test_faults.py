"""Every misbehaviour once, in one benchmark with good variants, by the script that a GPU is checked with."""

import json
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from passbench.ipc.spawn import Spawn
from passbench.workers import process_usage
from tests.passbench.workers import faults
from tests.support.warm_forks import WarmForks

ROOT = Path(__file__).parents[3]
PROCESSES = ("leave_children", "fork_bomb")


@pytest.fixture
def inject(warm_forks: WarmForks, tmp_path: Path) -> Callable[..., dict]:
    """Runs the script; it has to leave with 0. What it reports is returned."""

    def injected(*arguments: str) -> dict:
        given = ["--times", "1", "--out", str(tmp_path), "--device", "cpu", *arguments]
        done = warm_forks.run("from tests.passbench.workers.faults import main; main()", given, directory=ROOT)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        return json.loads((tmp_path / "faults.json").read_text())

    return injected


def test_each_fault_is_recorded_and_nothing_else_suffers(inject, tmp_path):
    """Those that leave processes once more where there are no namespaces."""
    report = inject("--without-namespaces", *PROCESSES)
    assert report["problems"] == []
    records = report["records"]
    bare = {r["job"] for r in records if "namespaces" not in r["layers"]}
    assert bare >= set(PROCESSES) and bare < {r["job"] for r in records}
    recorded = {r["job"]: r["status"] for r in records if r["job"] in faults.FAULTS}
    assert recorded == {name: fault.other.get("cpu", fault.status) for name, fault in faults.FAULTS.items()}
    good = [r for r in records if r["job"] not in faults.FAULTS]
    assert len(good) >= 6 and {(r["status"], r["t_min"]) for r in good} == {("ok", -10)}
    assert "Nothing unexpected." in (tmp_path / "faults.md").read_text()


def test_what_is_left_behind_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(faults, "_GONE_SECONDS", 0.0)
    assert not [line for line in faults.left_behind([str(tmp_path)]) if "sleep" in line]
    marked = ["env", "-i", f"HOME={tmp_path}/home", "sleep", "60"]
    with subprocess.Popen(marked, start_new_session=True) as other:
        while b"HOME" not in Path(f"/proc/{other.pid}/environ").read_bytes():
            time.sleep(0.01)
        assert any(line.startswith(f"{other.pid} ") for line in faults.left_behind([str(tmp_path)]))
        other.kill()


def test_a_plan_holds_every_fault_so_many_times_among_good_variants():
    jobs = faults.plan(sorted(faults.FAULTS), 10, faults.random.Random(0))
    assert all(sum(job.name == name for job in jobs) == 10 for name in faults.FAULTS)
    variants = [v for job in jobs for v in job.sample.variants]
    assert len(variants) >= 100 and sum(v.inputs[0].shape == (4, 40) for v in variants) >= 100
    assert jobs != faults.plan(sorted(faults.FAULTS), 10, faults.random.Random(1))


def test_limits_hold_for_a_worker_with_its_descendants():
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            filled = b"x" * (256 << 20)  # far more than this process may have taken since the fork
            os.write(write, filled[:1])
        time.sleep(60)
        os._exit(0)
    os.read(read, 1)
    family = process_usage.family(child)
    assert len(family) == 2 and family[0] == child
    shared = process_usage.filled_bytes("self")
    spawn = Spawn(False, frozenset({0}), ".", {}, False, "cpu", 1, None, 1 << 30, 2, 0, 0.0, 0, True)
    assert process_usage.excess(child, shared, spawn) == ""
    assert process_usage.excess(child, shared, replace(spawn, processes=1)) == "more than 1 processes"
    less = replace(spawn, resident_bytes=32 << 20)
    assert process_usage.excess(child, shared, less) == "more than 0.0 GiB of the machine's memory"
    for pid in family:
        os.kill(pid, 9)
    os.waitpid(child, 0)
    assert process_usage.excess(child, shared, replace(spawn, resident_bytes=0)) == ""
    for fd in (read, write):
        os.close(fd)


def test_shared_memory_counts_beyond_that_of_inputs_and_outputs(monkeypatch):
    monkeypatch.setattr(process_usage, "_SHARED_BYTES", 0)
    spawn = Spawn(False, frozenset({0}), ".", {}, False, "cpu", 1, None, 32 << 20, 2, 0, 0.0, 0, True)
    own, ready = process_usage.filled_bytes("self"), os.pipe()
    child = os.fork()
    if child == 0:
        with mmap.mmap(-1, 64 << 20) as shared:  # anonymous and shared: no memory of the process's own
            shared.write(b"x" * (64 << 20))
            os.write(ready[1], b"x")
            time.sleep(60)
        os._exit(0)
    os.read(ready[0], 1)
    assert process_usage.excess(child, own, spawn) == "more than 0.0 GiB of the machine's memory"
    os.kill(child, 9)
    os.waitpid(child, 0)
    for fd in ready:
        os.close(fd)


def test_files_have_a_limit(tmp_path):
    """The second look counts again since the file system has lost more than may be taken, not since time has passed."""
    spawn = Spawn(False, frozenset({0}), str(tmp_path), {}, False, "cpu", 1, None, 0, 0, 0, 0.0, 64 << 20, True)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "one").write_bytes(b"x" * (512 << 10))
    disk = process_usage.DiskUse(spawn)
    assert disk.excess() == disk.excess() == ""
    with open(tmp_path / "cache" / "two", "wb") as two:
        os.posix_fallocate(two.fileno(), 0, 256 << 20)
    assert disk.excess() == process_usage.DiskUse(spawn).excess() == "more than 0.1 GiB on disk"
    os.unlink(two.name)


def test_a_stopped_worker_is_not_looked_at():
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    for number, rests in ((signal.SIGSTOP, True), (signal.SIGCONT, False)):
        os.kill(child, number)
        assert os.waitpid(child, os.WUNTRACED | os.WCONTINUED)[0] == child
        assert process_usage.at_rest(child) is rests
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert not process_usage.at_rest(child)


@pytest.mark.gpu
def test_each_fault_on_a_gpu(tmp_path):
    # in a new process: what warm forks import, a GPU host need not have
    given = ["--times", "1", "--out", str(tmp_path), "--device", "cuda"]
    done = subprocess.run([sys.executable, "-m", "tests.passbench.workers.faults", *given], cwd=ROOT, check=False)
    assert json.loads((tmp_path / "faults.json").read_text())["problems"] == []
    assert done.returncode == 0
