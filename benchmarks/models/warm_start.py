"""Where a warm start goes: models on a GPU host whose library and caches an earlier run has filled, a process each.

    python -m benchmarks.models.run_models --out COLD --regimes ours --library LIB --cache CACHE --models NAMES
    python -m benchmarks.models.warm_start --out DIR --library LIB --cache CACHE --models NAMES [--workers 12]
        [--at-once 1] [--compile-threads 1] [--batch 1] [--dtype float32] [--device cuda]

Each process imports torch, builds its model, waits for its turn and calls it once; then the clock runs from
`passnet.optimize` until three calls were answered. Meanwhile a thread looks at the main thread's stack every 5 ms. With
`--prepared` no clock runs before all models are built, so that no process imports torch beside one that is timed;
`--workers` must be as many as there are models then.

Writes DIR/warm.jsonl, a row for each model: seconds, `kept` if an earlier process's capture was taken up, `said` what
was logged of it, `host_us` (`passbench.timing.cores`), seconds by part, and `imported` seconds by the first module that
is being imported; and DIR/stacks/MODEL.txt, the stacks and how often each was seen (lines for a flame graph).
"""

import argparse
import contextlib
import fcntl
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import IO, Any

PARTS = (
    ("import", ("importlib._bootstrap",)),
    ("kept capture", ("kept_captures.py:get", "kept_captures.py:__init__")),
    ("capture is kept", ("kept_captures.py:put",)),
    ("facts of the graph", (":graph_facts",)),
    ("dynamo: guards", (":build_guards",)),
    ("dynamo: fake tensors", (":get_fake_value", ":wrap_tensor")),
    ("dynamo: rest", (":capture_model",)),
    ("merging weights", (":merge_weights", ":take_parameter_parts")),
    ("waiting for hashes", ("threading.py:join",)),
    ("waiting for kernels", (":wait_for_kernels",)),
    ("artefact: kernels", ("async_compile.py:wait", "async_compile.py:triton", "triton_heuristics.py:")),
    ("artefact: rest", (":compile_graph",)),
    ("CUDA graph: in its thread", (":captured_in",)),
    ("CUDA graph: first calls", (":_capture lowering.py:call",)),
    ("CUDA graph: copies", (":_capture", "graph_copies.py:")),
    ("CUDA graph: rest", (":_capture",)),
    ("calls", ("optimized_model.py:__call__",)),
)
"""Parts of a start, and what each is known by in a stack: the first part fits of which all words, or one, is there."""

Stack = tuple[str, ...]


def main(given: Sequence[str] | None = None) -> int:
    """Measure the models that the command line names; returns 0 if all answered."""
    options = _parser().parse_args(given)
    if options.one:
        print(json.dumps(_measured(options)), flush=True)
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    names = options.models.split(",")
    if options.prepared and options.workers < len(names):
        raise SystemExit(f"--prepared needs a process for each of {len(names)} models: --workers {len(names)}")
    with ThreadPoolExecutor(options.workers) as pool, tempfile.TemporaryDirectory(dir=options.out) as ready:
        options.ready, options.wanted = ready, len(names) if options.prepared else 0
        rows = list(pool.map(lambda name: _in_process(name, options), names))
    good = [row["seconds"] for row in rows if "seconds" in row]
    print(f"{len(good)} of {len(rows)} models, {statistics.median(good):.2f} s in the median" if good else "none")
    return 0 if len(good) == len(rows) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--cache", type=Path, required=True, help="that of run_models.py")
    parser.add_argument("--models", required=True, help="names separated by commas")
    parser.add_argument("--workers", type=int, default=12, help="processes side by side")
    parser.add_argument("--at-once", type=int, default=1, help="of them run against the clock")
    parser.add_argument("--compile-threads", type=int, default=1, help="TorchInductor's of each; for filling alone")
    parser.add_argument("--prepared", action="store_true", help="no clock runs before all models are built")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    parser.add_argument("--ready", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--wanted", type=int, default=0, help=argparse.SUPPRESS)
    return parser


def _in_process(name: str, options: argparse.Namespace) -> dict[str, Any]:
    keys = ("out", "library", "cache", "batch", "dtype", "device", "at_once", "ready", "wanted")
    arguments = [f"--{key.replace('_', '-')}={getattr(options, key)}" for key in keys]
    command = [sys.executable, "-m", "benchmarks.models.warm_start", f"--one={name}", f"--models={name}", *arguments]
    caches = {
        "TORCHINDUCTOR_CACHE_DIR": str(options.cache / "inductor"),
        "TRITON_CACHE_DIR": str(options.cache / "triton"),
    }
    threads = {"TORCHINDUCTOR_COMPILE_THREADS": str(options.compile_threads), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env={**os.environ, **caches, **threads, "HF_HUB_OFFLINE": "1"}, capture_output=True, text=True
    )
    (Path(options.ready) / f"{name.replace(':', '_')}").touch()  # one that failed keeps nobody waiting
    lines = done.stdout.strip().splitlines()
    row = json.loads(lines[-1]) if done.returncode == 0 else {"model": name, "reason": done.stderr[-2000:]}
    with (options.out / "warm.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(name, row.get("seconds"), row.get("parts", row.get("reason")), flush=True)
    return row


def _measured(options: argparse.Namespace) -> dict[str, Any]:
    import torch

    from benchmarks.models.model_list import MODELS, prepared
    from passbench.models.optimize import optimize_model
    from passbench.models.optimized_model import OptimizeSettings
    from passbench.timing.cores import host_us

    (found,) = [model for model in MODELS if model.name == options.one]
    model, args, kwargs = prepared(found, options.batch, getattr(torch, options.dtype), torch.device(options.device))
    settings = OptimizeSettings(effort="quick", library=options.library)
    said: list[str] = []
    logger, handler = logging.getLogger("passnet.models"), logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage()[:300])
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    (options.ready / options.one.replace(":", "_")).touch()
    while len(list(options.ready.iterdir())) < options.wanted:
        time.sleep(0.2)
    with torch.no_grad(), _turn(options.out, options.at_once):
        model(*args, **kwargs)
        host = host_us()
        stacks: list[Stack] = []
        done = threading.Event()
        sampler = threading.Thread(target=_look, args=(threading.get_ident(), stacks, done), daemon=True)
        sampler.start()
        begin, processor = time.perf_counter(), time.process_time()
        ours = optimize_model(model, args, kwargs, settings)
        for _ in range(3):
            ours(*args, **kwargs)
        seconds, processor = time.perf_counter() - begin, time.process_time() - processor
        done.set()
        sampler.join()
    _write(options.out / "stacks", options.one, stacks)
    each = seconds / max(1, len(stacks))
    return {
        "model": options.one,
        "seconds": round(seconds, 3),
        "processor": round(processor, 3),
        "chosen": ours.report.name,
        "remembered": ours.report.remembered,
        "kept": ours.report.kept,
        "said": said,
        "host_us": round(host),
        "fallbacks": ours.fallbacks,
        "parts": _shares(map(part_of, stacks), each),
        "imported": _shares((_imported(stack) for stack in stacks if part_of(stack) == "import"), each),
    }


@contextlib.contextmanager
def _turn(directory: Path, at_once: int) -> Iterator[None]:
    """One of so many turns: processes get ready side by side, and few of them run against the clock."""
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context((directory / f"turn-{n}.lock").open("w")) for n in range(at_once)]
        while not any(map(_locked, files)):
            time.sleep(0.05)
        yield


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _look(thread: int, stacks: list[Stack], done: threading.Event) -> None:
    while not done.wait(0.005):
        stacks.append(_names(sys._current_frames().get(thread)))


def _names(frame: FrameType | None) -> Stack:
    found = []
    while frame is not None:
        path = frame.f_code.co_filename
        short = path if path.startswith("<") else "/".join(path.split("/")[-2:])
        found.append(f"{short}:{frame.f_code.co_name}")
        frame = frame.f_back
    return tuple(reversed(found))


def part_of(stack: Stack) -> str:
    """The part of a start that a stack is in."""
    text = " ".join(stack)
    for name, words in PARTS:
        if any(all(word in text for word in each.split(" ")) for each in words):
            return name
    return "other"


def _imported(stack: Stack) -> str:
    inside = stack[stack.index("models/warm_start.py:_measured") :]
    return next((each.removesuffix(":<module>") for each in inside if each.endswith(":<module>")), "?")


def _shares(names: Iterable[str], each: float) -> dict[str, float]:
    return {name: round(count * each, 2) for name, count in Counter(names).most_common(12)}


def _write(directory: Path, name: str, stacks: Sequence[Stack]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    lines = [f"{';'.join(stack)} {count}" for stack, count in Counter(stacks).most_common()]
    (directory / f"{name.replace(':', '_')}.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
