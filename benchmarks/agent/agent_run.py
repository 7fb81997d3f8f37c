"""The author `llm` through `prefect deployment run`, with a scripted model, k attempts, and a kill in the middle.

    python3 benchmarks/agent/agent_run.py VERSION_DIR --device cuda --limit 20 --attempts 3 --out OUT

Starts a Prefect server, a process worker and an OpenAI-compatible server on loopback. The model's right passes are
those of the offline author; its attempts err in all ways of `tests.support.llm_solver`, and its server fails now and
then. Halfway the process of the flow run is killed; the same command is given again. Then `agent_checks` looks at what
is there. Writes OUT/summary.json and OUT/README.md; exits 1 if a check fails.
"""

import argparse
import json
import math
import os
import platform
import signal
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from agent.distill.source.style import Style
from agent.distill.static import Distill
from agent.run.choose import floating_dtype
from benchmarks.agent.agent_checks import Kill, checks, finished, used
from flows.evaluate.devices import resolve_devices
from passbench.contract import read_pass_dir
from storage.records import Sample
from storage.versions.provenance import git_state, library_versions
from storage.versions.samples import load_samples
from storage.versions.store import Version
from tests.flows.prefect_server import ROOT, Prefect, prefect_server
from tests.support.llm_server import LlmServer
from tests.support.llm_solver import Solver
from tests.support.processes import below, wait_for_end
from tests.support.stores import publish_samples

KEY = "sk-scripted-0123456789-nobody-may-see-this"
MODEL = "openai-chat:scripted"
PRICE = (1.0, 10.0)  # dollars per million input and output tokens
FAULTS = (429, 500, 503, "garbage")
_FAULT_EVERY = 9  # requests
_REGIONS = 2
_CATEGORIES = ("fusible", "typical")


class StepSeconds:
    """Seconds that the parts of the run took, by name."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._mark = time.monotonic()

    def lap(self, name: str) -> None:
        """The part that ends here."""
        now = time.monotonic()
        self.laps[name], self._mark = round(now - self._mark, 1), now


def main() -> int:
    arguments = parse_arguments()
    out = arguments.out.resolve()
    out.mkdir(parents=True)
    watch = StepSeconds()
    solutions, digest = prepare(arguments, out)
    watch.lap("the model's passes written")
    solver = Solver(solutions, arguments.attempts)
    kill = run(solver, out, arguments, watch)
    devices = len(resolve_devices(arguments.device))
    found = checks(out, solver, kill, arguments.attempts, devices, MODEL, PRICE, KEY)
    watch.lap("checked")
    cuda = arguments.device.startswith("cuda")
    summary = {
        "checks": [one._asdict() for one in found],
        "samples": arguments.limit,
        "attempts": arguments.attempts,
        "requests": len(solver.asked),
        "failed_requests": kill.faults,
        "held": solver.holding._asdict(),
        "finished_before": len(kill.before),
        "used": used(out),
        "seconds": watch.laps,
        "dataset": digest,
        "device": torch.cuda.get_device_name() if cuda else platform.processor() or "CPU",
        "libraries": library_versions(),
        "git": list(git_state()),
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    text = record(summary)
    (out / "README.md").write_text(text)
    print(text)
    return 0 if all(one.ok for one in found) else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", type=Path, help="directory of a dataset version")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--limit", type=int, default=20, help="samples, fusible and typical in turn")
    parser.add_argument("--attempts", type=int, default=3)
    parser.add_argument("--elements", type=int, default=1 << 26, help="of all inputs of a sample's variant, at most")
    parser.add_argument("--out", type=Path, required=True, help="a new directory")
    return parser.parse_args()


def prepare(arguments: argparse.Namespace, out: Path) -> tuple[dict[str, dict[str, str]], str]:
    """A version of the samples alone in `out`/data, and the files of a right pass for each; and the digest of the
    version that they are from."""
    version = Version.open(arguments.version)
    chosen = list(islice(candidates(version, arguments.elements), arguments.limit + arguments.limit // 4 + 1))
    places = [out / "passes" / sample.sample for sample in chosen]
    with ProcessPoolExecutor(min(len(os.sched_getaffinity(0)), 12), get_context("spawn")) as pool:
        found = list(zip(chosen, pool.map(solution, chosen, places), strict=True))
    kept = [(sample, files) for sample, files in found if files][: arguments.limit]
    if len(kept) < arguments.limit:
        raise SystemExit(
            f"{version.name} has {len(kept)} samples with a pass among {len(found)}, not {arguments.limit}"
        )
    publish_samples([sample for sample, _ in kept], out / "data")
    return {sample.sample: files for sample, files in kept}, version.manifest.digest


def candidates(version: Version, elements: int) -> Iterator[Sample]:
    """Evaluation samples with one variant each, its dtype another one from sample to sample."""
    for number, sample in enumerate(load_samples(version, "eval", _CATEGORIES)):
        first = {floating_dtype(v): v for v in reversed(sample.variants)}
        variant = list(first.values())[number % len(first)]
        if sum(torch.Size(i.shape).numel() for i in variant.inputs) <= elements:
            yield replace(sample, variants=(variant,))


def solution(sample: Sample, directory: Path) -> dict[str, str]:
    """Files of the offline author's pass for the sample, worth its while or not: the two regions that promise most.
    None where it can write none."""
    task = Distill(seconds=10.0).task(sample, -math.inf)
    submission = task.write(list(task.gains())[:_REGIONS], Style(), directory)
    return dict(read_pass_dir(directory).files) if submission.pass_dir else {}


def run(solver: Solver, out: Path, arguments: argparse.Namespace, watch: StepSeconds) -> Kill:
    """The deployment started, killed and started again; what there was at the kill."""
    home, log = out / "prefect", out / "worker.log"
    home.mkdir()
    faults = [FAULTS[n // _FAULT_EVERY % len(FAULTS)] if n % _FAULT_EVERY == 4 else None for n in range(5000)]
    command = ["deployment", "run", "evaluate-model/evaluate-model", *given(arguments)]
    with prefect_server(home) as prefect, LlmServer(solver, faults) as server:
        prefect.environment |= {
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
            "PASSNET_DATA": str(out / "data"),
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": server.url,
            "PREFECT_WORKER_QUERY_SECONDS": "1",
        }
        tell(prefect, "work-pool", "create", "local", "--type", "process")
        tell(prefect, "deploy", "-n", "evaluate-model")
        with prefect.background(log, "worker", "start", "--pool", "local") as worker:
            tell(prefect, *command)
            watch.lap("server, deployment and worker started")
            if not solver.held.wait(400):
                raise SystemExit(f"the model was not asked often enough:\n{log.read_text()[-4000:]}")
            watch.lap("first run, to the kill")
            flow = flow_process(worker.pid)
            left = [flow, *below(flow)]
            kill = Kill(before=finished(out))
            os.kill(flow, signal.SIGKILL)
            kill.orphans = wait_for_end(left, 60)
            watch.lap("its processes ended")
            tell(prefect, *command, "--watch")
            watch.lap("second run")
        kill.states, kill.faults = states(prefect), server.failed
        if f"Bearer {KEY}" not in server.keys:
            raise SystemExit("the key did not reach the server, so it is no wonder that it is nowhere")
    return kill


def given(arguments: argparse.Namespace) -> list[str]:
    """The flow's parameters, as options of `prefect deployment run`."""
    parameters = {
        "author": "llm",
        "model": MODEL,
        "split": "eval",
        "limit": arguments.limit,
        "attempts": arguments.attempts,
        "device": arguments.device,
        "llm": json.dumps({"price": PRICE, "backoff": 0.05, "steps": 12}),
    }
    return [part for name, value in parameters.items() for part in ("-p", f"{name}={value}")]


def tell(prefect: Prefect, *arguments: str) -> None:
    """Run a command that must succeed."""
    done = prefect(*arguments, timeout=580)
    if done.returncode:
        raise SystemExit(f"prefect {' '.join(arguments[:3])} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")


def states(prefect: Prefect) -> list[str]:
    """States of the flow runs, oldest first."""
    request = urllib.request.Request(
        f"{prefect.environment['PREFECT_API_URL']}/flow_runs/filter",
        data=json.dumps({"sort": "START_TIME_ASC"}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return [run["state"]["name"] for run in json.load(answer)]


def flow_process(worker: int) -> int:
    """The process that runs the flow, below the worker's."""
    running = [pid for pid in below(worker) if b"prefect" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    if not running:
        raise SystemExit(f"the worker has no process of a flow: {below(worker)}")
    return running[0]


def record(summary: dict[str, Any]) -> str:
    """The summary as Markdown."""
    libraries = ", ".join(f"{name} {version}" for name, version in summary["libraries"].items())
    use, held = summary["used"], summary["held"]
    lines = [
        "# The author `llm` through `prefect deployment run`, killed in the middle",
        "",
        f"{summary['device']}; {libraries}; dataset digest {summary['dataset'][:12]}.",
        "",
        f"{summary['samples']} samples, {summary['attempts']} attempts at each by a scripted model "
        f"(`tests/support/llm_solver.py`): {use['steps']} steps, {use['tool_calls']} tool calls, "
        f"{use['input_tokens']} + {use['output_tokens']} tokens, ${use['cost_usd']:.4f}; "
        f"{summary['failed_requests']} more requests failed.",
        f"Killed (SIGKILL) when {summary['finished_before']} attempts were finished, while the model was asked for "
        f"step {held['step'] + 1} of attempt {held['attempt']} at `{held['sample']}`.",
        "",
        "| check | | what was found |",
        "|---|---|---|",
        *(f"| {c['name']} | {'yes' if c['ok'] else '**no**'} | {c['detail']} |" for c in summary["checks"]),
        "",
        *(f"- {name}: {took} s" for name, took in summary["seconds"].items()),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
