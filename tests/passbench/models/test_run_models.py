"""The processes of the models' benchmark: their turns, what becomes of those that die, and what is measured again."""

import argparse
import itertools
import json
import os
import sys
import time
from pathlib import Path

import pytest

from benchmarks.models.measured_job import Job, job_from
from benchmarks.models.passes_gain import gain
from benchmarks.models.run_models import _jobs, _measured, latest
from benchmarks.models.turns import Limits, Task, in_turns

MEASURES = """
import time
from benchmarks.models.turns import say_ready, say_row
say_ready()
begin = time.monotonic()
time.sleep(0.3)
say_row({{"name": {name!r}, "begin": begin, "end": time.monotonic()}})
"""


def task(folder: Path, name: str, text: str = MEASURES) -> Task:
    return Task((sys.executable, "-c", text.format(name=name)), folder / f"{name}.txt")


def test_processes_are_timed_one_after_another_and_one_that_dies_says_so(tmp_path):
    tasks = [task(tmp_path, name) for name in "abcd"] + [task(tmp_path, "dies", "raise SystemExit(3)")]
    limits = Limits(3, 2, time.monotonic() + 60)
    ended = list(in_turns(tasks, ["cpu"], dict(os.environ), limits))
    assert {each.task for each in ended} == set(tasks)
    (dead,) = [each for each in ended if each.row is None]
    assert dead.task is tasks[-1] and dead.why == "exit 3"
    spans = sorted((each.row["begin"], each.row["end"]) for each in ended if each.row)
    assert len(spans) == 4 and all(a[1] <= b[0] for a, b in itertools.pairwise(spans))


def test_a_process_that_is_never_ready_is_ended_at_the_deadline(tmp_path):
    hangs = task(
        tmp_path, "hangs", "import os, sys, time; print(os.getpid(), file=sys.stderr, flush=True); time.sleep(100)"
    )
    limits = Limits(1, 1, time.monotonic() + 3)
    assert list(in_turns([hangs], ["cpu"], dict(os.environ), limits)) == []
    with pytest.raises(ProcessLookupError):
        os.kill(int(hangs.log.read_text()), 0)


def test_rows_with_all_regimes_are_not_measured_again():
    asked = argparse.Namespace(
        models="2",
        max_autotune="transformers:bert",
        regimes="eager,ours",
        batches="1",
        dtypes="bfloat16,float32",
    )
    jobs = _jobs(asked)
    assert [job.key[:2] for job in jobs] == [
        ("transformers:bert", "bfloat16"),
        ("timm:resnext50_32x4d", "bfloat16"),
        ("timm:resnext50_32x4d", "float32"),
        ("transformers:bert", "float32"),
    ]
    assert jobs[0].regimes == ("eager", "max-autotune", "ours") and job_from(json.dumps(jobs[0])) == jobs[0]
    early = row(jobs[0], ("eager", "ours"))
    assert not _measured(jobs[0], [early]) and _measured(jobs[0]._replace(regimes=("eager", "ours")), [early])
    late = row(jobs[0], jobs[0].regimes)
    assert _measured(jobs[0], [late]) and not _measured(jobs[1], [late])
    assert latest([early, row(jobs[1], ()), late]) == [late, row(jobs[1], ())]


def test_the_gain_is_of_the_best_way_with_passes_over_the_best_without():
    def way(name: str, us: float | None, served: dict) -> dict:
        return {"way": name, "us": us, "served": served}

    ways = [
        way("eager-graph", 9.0, {}),
        way("merged-graph", 4.0, {}),
        way("eager-graph+passes", 6.0, {"a": 2, "b": 1}),
        way("inductor-graph+passes", None, {"a": 2}),
    ]
    found = gain(ways)
    assert (found["without"], found["with"], found["matches"]) == ("merged-graph", "eager-graph+passes", 3)
    assert found["gain"] == 4 / 6 and found["gain_in_eager_graph"] == 1.5
    assert gain(ways[:2])["gain"] is None


def row(job: Job, regimes: tuple[str, ...]) -> dict:
    return {"model": job.model, "dtype": job.dtype, "batch": job.batch, "regimes": [{"regime": r} for r in regimes]}
