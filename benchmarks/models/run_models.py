"""Models in all regimes on a GPU host, a process each:

    python -m benchmarks.models.run_models --out DIR [--seconds 340] [--models 10] [--dtypes bfloat16,float32]
        [--batches 1,16] [--regimes eager,compile,reduce-overhead,ours] [--effort quick] [--workers 14]
        [--device cuda:0,cuda:1] [--library DIR] [--without graph,passes]

Processes build and compile side by side, dealt out to the devices. Each waits when it is ready; then they are timed
one after another on each device, while those that still compile are stopped. With --library, what is chosen is kept
there; a second run with --regimes ours and another --out then says how long a warm start takes. Writes DIR/rows.jsonl
(rows of `storage.schema.MODEL_RESULTS`, as they come) and, at the end or when the seconds are over, DIR/summary.md,
which it prints, too. Rows that DIR has already are not measured again. A model that fails, hangs or dies has a row
that says so.
"""

import argparse
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

READY, ROW = "@@ready", "@@row "
"""What a child says on its standard output: that it waits for its turn, and its row."""
LONGEST = 300.0
"""Seconds after which a child that is not ready is killed."""
TIMING = 60.0
"""Seconds that a child's timing may take."""


@dataclass
class Child:
    """A process with one model, batch size and dtype."""

    job: tuple[str, str, int]
    device: str
    process: subprocess.Popen
    begun: float = field(default_factory=time.monotonic)
    ready: bool = False
    row: dict[str, Any] | None = None
    heard: bytes = b""

    def signal(self, number: int) -> None:
        """To it and the compilers that it started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)

    def end(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()


def main(given: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; returns 0 if any row is `ok`."""
    options = _parser().parse_args(given)
    if options.child:
        return _child(options)
    begin = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "logs").mkdir(exist_ok=True)
    rows = _rows(options.out)
    done = {(row["model"], row["dtype"], row["batch"]) for row in rows}
    waiting = [job for job in _jobs(options) if job not in done]
    running: list[Child] = []
    try:
        while (waiting or running) and time.monotonic() - begin < options.seconds:
            while waiting and len(running) < options.workers:
                used = Counter(child.device for child in running)
                device = min(options.device.split(","), key=lambda name: used[name])
                running.append(_start(waiting.pop(0), device, options))
            _wait(running, begin + options.seconds, options.patience)
            for child in _in_turn(running, begin + options.seconds):
                rows.append(_finish(child, options))
                running.remove(child)
    finally:
        for child in running:
            child.end()
    print(_summarise(rows, options, time.monotonic() - begin))
    return 0 if any(row["status"] == "ok" for row in rows) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=3600.0, help="time for everything")
    parser.add_argument("--models", default="", help="the first N, or names separated by commas; default all")
    parser.add_argument("--dtypes", default="bfloat16,float32")
    parser.add_argument("--batches", default="1,16")
    parser.add_argument("--regimes", default="eager,compile,reduce-overhead,ours")
    parser.add_argument("--effort", default="quick")
    parser.add_argument("--library", default=None, help="where choices are kept, and passes that may serve are")
    parser.add_argument("--without", default="", help="parts to switch off, separated by commas")
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--no-double", action="store_true", help="compare with eager alone")
    parser.add_argument("--workers", type=int, default=max(1, min(14, (os.cpu_count() or 2) - 2)))
    parser.add_argument("--patience", type=float, default=100.0, help="time for compiling before the ready are timed")
    parser.add_argument("--device", default="cuda", help="cuda, cpu, or names such as cuda:0,cuda:1")
    compiled = Path(tempfile.gettempdir()) / "passnet-models"
    parser.add_argument("--cache", type=Path, default=compiled, help="what is compiled is kept there for later runs")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    return parser


def _jobs(options: argparse.Namespace) -> list[tuple[str, str, int]]:
    from benchmarks.models.model_list import MODELS

    names = [model.name for model in MODELS]
    if options.models.isdigit():
        names = names[: int(options.models)]
    elif options.models:
        names = options.models.split(",")
    dtypes, batches = options.dtypes.split(","), [int(batch) for batch in options.batches.split(",")]
    return [(name, dtype, batch) for name in names for dtype in dtypes for batch in batches]


def _rows(out: Path) -> list[dict[str, Any]]:
    file = out / "rows.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _start(job: tuple[str, str, int], device: str, options: argparse.Namespace) -> Child:
    name = "-".join(str(part).replace(":", "_").replace("/", "_") for part in job)
    kind, _, number = device.partition(":")
    arguments = [f"--{key}={getattr(options, key)}" for key in ("regimes", "effort", "without")]
    arguments += [f"--device={kind}", *["--strict"] * options.strict, *["--no-double"] * options.no_double]
    arguments += [f"--library={options.library}"] * bool(options.library)
    command = [
        sys.executable,
        "-m",
        "benchmarks.models.run_models",
        f"--out={options.out}",
        f"--child={json.dumps(job)}",
    ]
    environment = {
        **os.environ,
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(options.cache / "inductor"),
        "TRITON_CACHE_DIR": str(options.cache / "triton"),
        "HF_HUB_OFFLINE": "1",
        **({"CUDA_VISIBLE_DEVICES": number} if number else {}),
    }
    with (options.out / "logs" / f"{name}.txt").open("w") as log:
        process = subprocess.Popen(
            command + arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    os.set_blocking(process.stdout.fileno(), False)
    return Child(job, device, process)


def _wait(running: Sequence[Child], deadline: float, patience: float) -> None:
    """Until all children are ready or gone, or some are and patience is over."""
    begin = time.monotonic()
    for child in running:
        child.signal(signal.SIGCONT)
    while time.monotonic() < deadline:
        _listen(running, 0.2)
        open_ = [child for child in running if not child.ready and child.process.poll() is None]
        for child in open_:
            if time.monotonic() - child.begun > LONGEST:
                child.end()
        late = time.monotonic() - begin > patience
        if not open_ or (late and len(open_) < len(running)):
            return


def _listen(running: Sequence[Child], seconds: float) -> None:
    with selectors.DefaultSelector() as selector:
        for child in running:
            if child.process.poll() is None:
                selector.register(child.process.stdout, selectors.EVENT_READ, child)
        if not selector.get_map():
            return
        for key, _ in selector.select(seconds):
            _hear(key.data)


def _hear(child: Child) -> None:
    *lines, child.heard = (child.heard + (child.process.stdout.read() or b"")).split(b"\n")
    for line in (each.decode(errors="replace") for each in lines):
        if line == READY:
            child.ready = True
        elif line.startswith(ROW):
            child.row = json.loads(line[len(ROW) :])


def _in_turn(running: Sequence[Child], deadline: float) -> Iterator[Child]:
    """Let each child that is ready time its calls, alone on its device; yields those that are through."""
    for child in running:
        if not child.ready:
            child.signal(signal.SIGSTOP)
    queues: dict[str, list[Child]] = defaultdict(list)
    for child in list(running):
        if child.process.poll() is not None:
            _hear(child)
            yield child
        elif child.ready:
            queues[child.device].append(child)
    timing: dict[str, tuple[Child, float]] = {}
    while timing or (any(queues.values()) and time.monotonic() < deadline):
        for device, queue in queues.items():
            if queue and device not in timing and time.monotonic() < deadline:
                timing[device] = (queue.pop(0), time.monotonic())
                timing[device][0].process.stdin.write(b"go\n")
                timing[device][0].process.stdin.flush()
        _listen([child for child, _ in timing.values()], 0.1)
        for device, (child, begun) in list(timing.items()):
            ended = child.process.poll() is not None
            if ended or child.row is not None or time.monotonic() - begun > TIMING:
                if child.row is None:
                    _hear(child)
                child.end()
                del timing[device]
                yield child


def _finish(child: Child, options: argparse.Namespace) -> dict[str, Any]:
    import torch

    from passbench.models.measured_model import failed_row

    name, dtype, batch = child.job
    row = child.row
    if row is None:
        code = child.process.returncode
        reason = (
            f"its process was killed after {time.monotonic() - child.begun:.0f} s" if code == -9 else f"exit {code}"
        )
        row = failed_row(name, "", batch, getattr(torch, dtype), reason, time.monotonic() - child.begun)
    with (options.out / "rows.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    speed = {key: None if row[key] is None else round(row[key], 3) for key in ("speedup_eager", "speedup_compiled")}
    times = {r["regime"]: r["us"] and round(r["us"], 1) for r in row["regimes"]}
    print(f"{name} {dtype} x{batch}: {row['status']} {row['chosen']} {speed} {times} {row['reason'][:160]}", flush=True)
    return row


def _child(options: argparse.Namespace) -> int:
    import torch

    from benchmarks.models.model_list import MODELS, prepared
    from passbench.models.measured_model import failed_row, measure_model
    from passbench.models.optimized_model import OptimizeSettings
    from storage.errors import in_one_line
    from storage.versions.provenance import source_commit

    name, dtype_name, batch = json.loads(options.child)
    dtype = getattr(torch, dtype_name)
    begin = time.monotonic()
    asked: list[bool] = []

    def turn() -> None:
        if not asked:
            asked.append(True)
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            print(READY, flush=True)
            sys.stdin.readline()

    try:
        (found,) = [model for model in MODELS if model.name == name]
        model, args, kwargs = prepared(found, batch, dtype, torch.device(options.device))
        row = measure_model(
            name,
            model,
            args,
            kwargs,
            OptimizeSettings(
                effort=options.effort,
                strict=options.strict,
                double=not options.no_double,
                library=options.library,
                without=tuple(part for part in options.without.split(",") if part),
            ),
            run="",
            batch=batch,
            regimes=options.regimes.split(","),
            commit=source_commit(),
            before_timing=turn,
        )
    except Exception as error:  # a model of another version of its library may raise anything
        import traceback

        traceback.print_exc()
        row = failed_row(name, "", batch, dtype, in_one_line(error), time.monotonic() - begin)
    print(ROW + json.dumps(row), flush=True)
    return 0


def _summarise(rows: Sequence[dict[str, Any]], options: argparse.Namespace, seconds: float) -> str:
    from benchmarks.models.summary import summary

    text = summary(rows, seconds)
    (options.out / "summary.md").write_text(text)
    return text


if __name__ == "__main__":
    sys.exit(main())
