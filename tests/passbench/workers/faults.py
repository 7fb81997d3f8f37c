"""Passes that misbehave, many times in one benchmark, among variants that must not notice.

Run  python3 -m tests.passbench.workers.faults --device cuda --times 10 --out DIR  from the repository root. Every fault
of
`tests/support/faults` occurs `times` times, in an order that `--seed` decides, with good variants before and after;
all go through one `Bench`. Writes DIR/faults.md and DIR/faults.json; exits 1 if anything was not as expected. Needs
torch, triton, numpy, pandas and pyarrow, and Linux.
"""

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch

from passbench.bench import Bench
from passbench.result import VariantResult
from passbench.settings import Settings
from passbench.workers import isolation
from passbench.workers.fork_server_client import shared_server
from storage.errors import PassNetError
from storage.records import Sample
from tests.passbench.samples import PASSES, add_relu_sample
from tests.support.processes import alive, begun_in, below

DIRECTORY = PASSES.parent / "faults"
_BAD, _GOOD = (3, 40), (4, 40)  # the fixtures misbehave on three rows
_FREE_BYTES = 64 << 20
_GONE_SECONDS = 10.0
_LIMITS = {
    "cpu": {"first_call_timeout": 4.0, "call_timeout": 10.0, "load_timeout": 20.0, "host_memory_bytes": 1 << 29},
    "cuda": {"first_call_timeout": 10.0, "call_timeout": 10.0, "load_timeout": 30.0, "host_memory_bytes": 3 << 30},
}


@dataclass(frozen=True)
class Fault:
    """What must be recorded of a misbehaviour. `reason`: part of it, by device; `other`: a status, where a device has
    another one."""

    status: str
    reason: dict[str, str] = field(default_factory=dict)
    other: dict[str, str] = field(default_factory=dict)


def _dies(how: str) -> dict[str, str]:
    return {device: f"the worker process ended ({how}" for device in ("cpu", "cuda")}


_LATE = {device: "no answer within" for device in ("cpu", "cuda")}
_HOST_MEMORY = "GiB of the machine's memory"
FAULTS = {
    "hang_host": Fault("timeout", _LATE),
    "hang_device": Fault("timeout", _LATE),
    "crash_device": Fault(
        "runtime_error", {"cpu": "memory_outside", "cuda": "illegal memory access"}, {"cpu": "compile_error"}
    ),
    "exhaust_memory": Fault("runtime_error", {"cpu": "can't allocate memory", "cuda": "out of memory"}),
    "exhaust_host_memory": Fault("runtime_error", {"cpu": _HOST_MEMORY, "cuda": _HOST_MEMORY}),
    "print_flood": Fault("ok"),
    "leave_files": Fault("ok"),
    "leave_threads": Fault("ok"),
    "leave_children": Fault("ok"),
    "fork_bomb": Fault("ok"),
    "exit_early": Fault("runtime_error", _dies("exit status 0)")),
    "exit_later": Fault("runtime_error", _dies("exit status 0)")),
    "segfault": Fault("runtime_error", _dies("signal SIGSEGV)")),
    "close_descriptors": Fault("runtime_error"),
}


@dataclass(frozen=True)
class Job:
    """A benchmark of one sample: under a fault, which may be followed by a good variant of the same pass, or good
    altogether."""

    name: str
    compiler: str
    directory: Path | None
    sample: Sample


@dataclass
class Findings:
    """Results by job, and whatever was not as expected."""

    results: list[tuple[Job, VariantResult]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


GOOD = (
    Job("add_relu", "pass", PASSES / "add_relu", add_relu_sample(_GOOD)),
    Job("eager", "eager", None, add_relu_sample(_GOOD)),
)


def plan(names: Sequence[str], times: int, rng: random.Random) -> list[Job]:
    """All faults `times` times in random order, every other one with a good variant behind it in the same sample;
    after every third a job of good variants alone."""
    jobs: list[Job] = []
    for name in names:
        samples = [add_relu_sample(_BAD, *[_GOOD] * (number % 2)) for number in range(times)]
        jobs += [Job(name, "pass", DIRECTORY / name, sample) for sample in samples]
    rng.shuffle(jobs)
    mixed: list[Job] = []
    for number, job in enumerate(jobs):
        mixed.append(job)
        if number % 3 == 2:
            mixed.append(GOOD[number // 3 % len(GOOD)])
    return [*mixed, *GOOD]


def settings(device: str, *, namespaces: bool) -> Settings:
    """Few calls and short limits; the static policy, which refuses most of the faults, is off."""
    off = {"static_policy"} | (set() if namespaces else {"namespaces"})
    counts = {"calls": 4, "warmup": 1, "batch": 4, "pairs": 2, "repeats": 0, "draws": 1}
    return Settings(seed=1, off=frozenset(off), **counts, **_LIMITS[device])


def run(bench: Bench, jobs: Iterable[Job], device: str, *, shared_gpu: bool = False) -> Findings:
    """Run all jobs, and compare each result with what it must be; the good ones with themselves alone. What is left on
    a GPU is not looked at where others use it."""
    alone = {job.name: [r.t_min for r in bench.run(job.sample, job.compiler, job.directory)] for job in GOOD}
    found = Findings()
    if any(t_min is None for levels in alone.values() for t_min in levels):
        found.problems.append(f"good variants fail even alone: {alone}")
    level = alone["add_relu"][0]
    before = {} if shared_gpu else _state(device, bench)
    for job in jobs:
        try:
            results = list(bench.run(job.sample, job.compiler, job.directory))
        except (PassNetError, OSError, RuntimeError) as error:
            found.problems.append(f"{job.name}: the benchmark itself failed: {type(error).__name__}: {error}")
            continue
        found.results += [(job, result) for result in results]
        found.problems += _check(job, results, level, device)
        print(
            f"{job.name:20} {'  '.join(f'{r.status} {r.seconds:.1f} s {r.reason[:70]}' for r in results)}", flush=True
        )
    found.problems += _compared(before, {} if shared_gpu else _state(device, bench))
    found.problems += [f"a file is left: {file}" for file in bench._scratch.glob("pass-*/box/*/left")]
    return found


def _check(job: Job, results: list[VariantResult], level: int | None, device: str) -> list[str]:
    problems = []
    if [r.variant_hash for r in results] != [v.variant_hash for v in job.sample.variants]:
        problems.append(f"{job.name}: {len(results)} records of {len(job.sample.variants)} variants")
    for variant, result in zip(job.sample.variants, results, strict=False):
        misbehaves = job.name in FAULTS and variant.inputs[0].shape == _BAD
        fault = FAULTS[job.name] if misbehaves else Fault("ok")
        good = fault.status != "ok" or result.t_min == level
        if (
            result.status != fault.other.get(device, fault.status)
            or fault.reason.get(device, "") not in result.reason
            or not good
        ):
            which = "" if misbehaves else " (good)"
            problems.append(f"{job.name}{which}: {result.status}, t_min {result.t_min}: {result.reason}")
    return problems


def _state(device: str, bench: Bench) -> dict[str, int]:
    """Free memory of the GPU, and processes on it as far as the driver tells."""
    if device != "cuda":
        return {}
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    users = bench._surroundings.look().get("gpu_processes", "")
    return {"free": torch.cuda.mem_get_info()[0]} | ({"processes": int(users)} if users.isdigit() else {})


def _compared(before: dict[str, int], after: dict[str, int]) -> list[str]:
    problems = []
    if before.get("free", 0) - after.get("free", 0) > _FREE_BYTES:
        problems.append(f"free memory of the GPU: {before['free'] >> 20} MiB before, {after['free'] >> 20} MiB after")
    if before.get("processes") != after.get("processes"):
        problems.append(f"processes on the GPU: {before.get('processes')} before, {after.get('processes')} after")
    return problems


def left_behind(directories: list[str]) -> list[str]:
    """Processes that outlive the benchmark, after a grace: our children, whom orphans of ours join, and whoever was
    started with one of these directories in its environment or works in it."""
    deadline = time.monotonic() + _GONE_SECONDS
    while (left := _ours(directories)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def _ours(directories: list[str]) -> list[str]:
    own, found = os.getpid(), []
    for pid in filter(alive, {*below(own), *begun_in(directories)} - {own}):
        with suppress(OSError):  # gone meanwhile
            found.append(f"{pid} {Path(f'/proc/{pid}/cmdline').read_bytes()[:200]!r}")
    return found


def table(found: Findings, seconds: float, title: str) -> str:
    """Markdown: one row a fault, one for the good variants among them, then what was unexpected."""
    groups: dict[str, list[VariantResult]] = {}
    for job, result in found.results:
        bad = job.name in FAULTS and result.variant_hash == "v0"
        groups.setdefault(job.name if bad else "(good variants)", []).append(result)
    lines = ["| fault | times | statuses | first reason | seconds, median |", "|---|---|---|---|---|"]
    for name, results in sorted(groups.items()):
        statuses = ", ".join(f"{s} {n}" for s, n in _counted(r.status for r in results).items())
        reason = results[0].reason[:120].replace("|", "\\|").replace("\n", " ")
        median = statistics.median(r.seconds for r in results)
        lines.append(f"| {name} | {len(results)} | {statuses} | {reason} | {median:.2f} |")
    ends = [f"- {problem}" for problem in found.problems] or ["Nothing unexpected."]
    return "\n".join([f"# {title}", "", f"{len(found.results)} records in {seconds:.0f} s.", "", *lines, "", *ends, ""])


def _counted(words: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    return counts


def write(found: Findings, seconds: float, title: str, out: Path) -> None:
    """Leave the table and every record in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "faults.md").write_text(table(found, seconds, title))
    keys = ("status", "reason", "t_min", "seconds", "layers", "surroundings")
    records = [{"job": j.name, "variant": r.variant_hash} | {k: getattr(r, k) for k in keys} for j, r in found.results]
    report = {"title": title, "seconds": seconds, "problems": found.problems, "records": records}
    (out / "faults.json").write_text(json.dumps(report, indent=1))


def main() -> None:
    """Inject the faults, look around afterwards, and report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--only", nargs="+", choices=sorted(FAULTS), default=sorted(FAULTS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without-namespaces", nargs="*", choices=sorted(FAULTS), default=[], help="once more so")
    parser.add_argument("--shared-gpu", action="store_true", help="others use the GPU: what is left there is not told")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    isolation.adopt_orphans()  # so that whoever gets away from the benchmark becomes our child
    begin = time.monotonic()
    found, server = Findings(), shared_server()
    marks = [str(server.scratch)]
    for names, namespaces in ((args.only, True), (args.without_namespaces, False)):
        if names:
            with Bench(args.device, settings(args.device, namespaces=namespaces)) as bench:
                jobs = plan(names, args.times, random.Random(args.seed))
                one = run(bench, jobs, args.device, shared_gpu=args.shared_gpu)
                marks.append(str(bench._scratch))
            found.results += one.results
            found.problems += one.problems + [f"{marks[-1]} is left"] * os.path.exists(marks[-1])
    server.close()  # it outlives a benchmark
    found.problems += [f"a process is left: {line}" for line in left_behind(marks)]
    title = f"Faults on {args.device}, {args.times} times each"
    title += f"; {', '.join(args.without_namespaces)} without namespaces, too" * bool(args.without_namespaces)
    seconds = time.monotonic() - begin
    if args.out:
        write(found, seconds, title, args.out)
    print(table(found, seconds, title))
    sys.exit(bool(found.problems))


if __name__ == "__main__":
    main()
