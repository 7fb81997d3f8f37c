"""Models in all regimes on a GPU host, a process each:

    python -m benchmarks.models.run_models --out DIR [--seconds 340] [--models 10] [--dtypes bfloat16,float32]
        [--batches 1,16] [--regimes eager,compile,reduce-overhead,ours] [--max-autotune 8] [--effort quick]
        [--workers 14] [--device cuda:0,cuda:1] [--library DIR] [--without graph,passes] [--known FILE]

Processes build and compile side by side, dealt out to the devices, and wait when they are ready. Once some wait, they
are timed one after another on each device, while those that still compile are stopped. --max-autotune names models, or
a number of them, that have that regime, too, in the first of the dtypes; they come first, since they compile longest.
With --library, what is chosen is kept there; a second run with --regimes ours and another --out then says how long a
warm start takes.

Writes DIR/rows.jsonl (rows of `storage.schema.MODEL_RESULTS`, as they come) and, at the end or when the seconds are
over, DIR/summary.md, which it prints, too. Rows that DIR or the file of --known has with all regimes are not measured
again, and the summary covers them. A model that fails, hangs or dies has a row that says so.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.models.measured_job import Job, job_from, run_job
from benchmarks.models.turns import Ended, Limits, Task, in_turns


def main(given: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; returns 0 if any row is `ok`."""
    options = _parser().parse_args(given)
    if options.job:
        run_job(job_from(options.job), options)
        return 0
    begin = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    (options.cache / "logs").mkdir(parents=True, exist_ok=True)
    file = options.out / "rows.jsonl"
    rows = latest([*_rows(options.known), *_rows(file)])
    jobs = {_task(job, options): job for job in _jobs(options) if not _measured(job, rows)}
    limits = Limits(options.workers, options.waiting, begin + options.seconds)
    for ended in in_turns(list(jobs), options.device.split(","), _environment(options), limits):
        row = ended.row or _failed(jobs[ended.task], ended)
        with file.open("a") as out:
            out.write(json.dumps(row) + "\n")
        rows = latest([*rows, row])
        _say(row)
    print(_summarise(rows, options, time.monotonic() - begin))
    return 0 if any(row["status"] == "ok" for row in rows) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--known", type=Path, default=None, help="rows of an earlier run, on another host perhaps")
    parser.add_argument("--seconds", type=float, default=3600.0, help="time for everything")
    parser.add_argument("--models", default="", help="the first N, or names separated by commas; default all")
    parser.add_argument("--dtypes", default="bfloat16,float32")
    parser.add_argument("--batches", default="1,16")
    parser.add_argument("--regimes", default="eager,compile,reduce-overhead,ours")
    parser.add_argument("--max-autotune", default="0", help="models that have that regime, too, as for --models")
    parser.add_argument("--effort", default="quick")
    parser.add_argument("--library", default=None, help="where choices are kept, and passes that may serve are")
    parser.add_argument("--without", default="", help="parts to switch off, separated by commas")
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--no-double", action="store_true", help="compare with eager alone")
    parser.add_argument("--workers", type=int, default=max(1, min(30, (os.cpu_count() or 2) - 2)), help="that compile")
    parser.add_argument("--waiting", type=int, default=10, help="so many are ready before they are timed")
    parser.add_argument("--device", default="cuda", help="cuda, cpu, or names such as cuda:0,cuda:1")
    compiled = Path(tempfile.gettempdir()) / "passnet-models"
    parser.add_argument("--cache", type=Path, default=compiled, help="what is compiled, for later runs; logs")
    parser.add_argument("--job", default="", help=argparse.SUPPRESS)
    return parser


def _jobs(options: argparse.Namespace) -> list[Job]:
    """What is to be measured, in order: models with max-autotune first, then one dtype after another."""
    names, autotuned = _names(options.models or "1000"), _names(options.max_autotune)
    regimes, batches = tuple(options.regimes.split(",")), [int(batch) for batch in options.batches.split(",")]
    dtypes = options.dtypes.split(",")
    jobs = [Job(name, dtype, batch, regimes) for dtype in dtypes for name in names for batch in batches]
    longer = [
        job._replace(regimes=(*regimes[:-1], "max-autotune", regimes[-1]))
        for job in jobs
        if job.dtype == dtypes[0] and job.model in autotuned and "max-autotune" not in regimes
    ]
    return [*longer, *(job for job in jobs if job.key not in {each.key for each in longer})]


def _names(asked: str) -> list[str]:
    from benchmarks.models.model_list import MODELS

    return [model.name for model in MODELS][: int(asked)] if asked.isdigit() else asked.split(",")


def _rows(file: Path | None) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file and file.exists() else []


def latest(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last row of each model, dtype and batch size."""
    return list({_key(row): row for row in rows}.values())


def _measured(job: Job, rows: Sequence[dict[str, Any]]) -> bool:
    regimes = [{r["regime"] for r in row["regimes"]} for row in rows if _key(row) == job.key]
    return any(set(job.regimes) <= found for found in regimes)


def _key(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["model"], row["dtype"], row["batch"]


def _task(job: Job, options: argparse.Namespace) -> Task:
    name = "-".join(str(part).replace(":", "_").replace("/", "_") for part in job.key)
    arguments = [f"--{key}={getattr(options, key)}" for key in ("out", "cache", "effort", "without")]
    arguments += [f"--device={options.device.partition(':')[0]}"]
    arguments += [*["--strict"] * options.strict, *["--no-double"] * options.no_double]
    arguments += [f"--library={options.library}"] * bool(options.library)
    command = (sys.executable, "-m", "benchmarks.models.run_models", f"--job={json.dumps(job)}", *arguments)
    return Task(command, options.cache / "logs" / f"{name}.txt")


def _environment(options: argparse.Namespace) -> dict[str, str]:
    return {
        **os.environ,
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(options.cache / "inductor"),
        "TRITON_CACHE_DIR": str(options.cache / "triton"),
        "HF_HUB_OFFLINE": "1",
    }


def _failed(job: Job, ended: Ended) -> dict[str, Any]:
    import torch

    from passbench.models.measured_model import failed_row

    return failed_row(job.model, "", job.batch, getattr(torch, job.dtype), ended.why, ended.seconds)


def _say(row: dict[str, Any]) -> None:
    speed = {key: None if row[key] is None else round(row[key], 3) for key in ("speedup_eager", "speedup_compiled")}
    times = {r["regime"]: r["us"] and round(r["us"], 1) for r in row["regimes"]}
    name = f"{row['model']} {row['dtype']} x{row['batch']}"
    print(f"{name}: {row['status']} {row['chosen']} {speed} {times} {row['reason'][:160]}", flush=True)


def _summarise(rows: Sequence[dict[str, Any]], options: argparse.Namespace, seconds: float) -> str:
    from benchmarks.models.summary import summary

    text = summary(rows, seconds)
    (options.out / "summary.md").write_text(text)
    return text


if __name__ == "__main__":
    sys.exit(main())
