"""`build-dataset` of a catalogue that a Hub on loopback lists: what each stage costs, and how that grows.

    python -m benchmarks.extraction.hub_catalog --entries 1000 --kinds tiny --workers 2 --out DIR
    python -m benchmarks.extraction.hub_catalog --entries 100000 --kinds all --until configs --out DIR
    python -m benchmarks.extraction.hub_catalog --entries 100000 --kinds tiny --server --out DIR

The Hub is that of `benchmarks.extraction.hub_entries`, in a process of its own, which no figure covers. For each stage:
wall time, processor time of the flow's process and of its workers, the most memory that the flow's process had resident
in it, and what the data directory and the Hub client's cache grew by. `--until configs` ends when all entries have
their specs. With `--server` the flow is a run of a real Prefect server, of which the memory and the database are noted;
without, a plain function. Run again with the same DIR, what is finished is not done again. Writes DIR/hub_catalog.json.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

STAGES = ("list", "fetch", "collapse", "trace", "cut", "typical", "vary", "publish")
_TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=1000)
    parser.add_argument("--kinds", choices=["tiny", "all"], default="tiny")
    parser.add_argument("--until", choices=["configs", "publish"], default="publish")
    parser.add_argument("--server", action="store_true", help="run the flow on a Prefect server")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # the flow's process
    arguments = parser.parse_args()
    if arguments.server and arguments.until == "configs":
        parser.error("with --server the flow runs to its end; leave --until configs out")
    inside(arguments) if arguments.inside else measure(arguments)


def measure(arguments: argparse.Namespace) -> None:
    """Start the Hub, run the flow in a process of its own, and note what came of it."""
    from benchmarks.extraction.large_catalog import of_server
    from storage.versions.provenance import library_versions
    from tests.flows.prefect_server import prefect_server

    arguments.out.mkdir(parents=True, exist_ok=True)
    address = arguments.out / "address.json"
    address.unlink(missing_ok=True)
    asked = ["--entries", str(arguments.entries), "--kinds", arguments.kinds, "--address", str(address)]
    hub = subprocess.Popen([sys.executable, "-m", "benchmarks.extraction.hub_entries", *asked])
    open_too = ExitStack()
    try:
        while not (address.exists() and address.stat().st_size):
            time.sleep(0.5)
            assert hub.poll() is None, "the Hub did not start"
        served = json.loads(address.read_text())
        environment = os.environ | {
            "HF_ENDPOINT": served["endpoint"],
            "HF_HOME": str((arguments.out / "hf").resolve()),
            "HF_HUB_OFFLINE": "0",
            "HF_TOKEN": "",
        }
        load = [os.getloadavg()]
        command = [sys.executable, "-m", "benchmarks.extraction.hub_catalog", *sys.argv[1:], "--inside"]
        home, server = arguments.out / "server", {}
        if arguments.server:
            home.mkdir(exist_ok=True)
            prefect = open_too.enter_context(prefect_server(home))
            environment = prefect.environment | environment
        subprocess.run(command, env=environment, check=True)
        load.append(os.getloadavg())
        if arguments.server:
            server = of_server(prefect, home)
    finally:
        hub.kill()
        open_too.close()
    record = (
        json.loads((arguments.out / "inside.json").read_text())
        | server
        | {
            "entries": served["entries"],
            "kinds": arguments.kinds,
            "workers": arguments.workers,
            "cores": len(os.sched_getaffinity(0)),
            "load": load,
            "kernel": platform.release(),
            "libraries": library_versions(),
        }
    )
    (arguments.out / "hub_catalog.json").write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))


class AllConfigs(Exception):
    """Raised when all entries have their specs and no more is asked for."""


def inside(arguments: argparse.Namespace) -> None:
    """The flow, with a look at this process and its workers wherever a stage ends."""
    from extraction.sources import hub_configs
    from flows.build_dataset import build_dataset
    from flows.progress import Progress, listening

    meter = Meter(arguments.out)
    prefetch = hub_configs.prefetch

    def metered(wanted) -> None:  # a stage within the stage "configs"
        before = meter.stage
        if len(wanted) > 1:
            meter.enter("fetch")
        prefetch(wanted)
        if len(wanted) > 1:
            meter.enter("collapse" if before in ("list", "collapse", "fetch") else before)

    hub_configs_source = sys.modules["extraction.sources.registry"].SOURCES
    hub_configs_source["hub"] = type(hub_configs_source["hub"])(
        **{**vars(hub_configs_source["hub"]), "prefetch": metered}
    )

    def heard(event: Progress) -> None:
        if event.stage == "configs":
            if event.done == event.total and arguments.until == "configs":
                meter.said = event.text
                raise AllConfigs
        elif event.stage != meter.stage:
            meter.enter(event.stage)

    done = {}
    try:
        with listening(heard):
            flow = build_dataset if arguments.server else build_dataset.fn
            done = flow(
                catalog="hub", limit=arguments.entries, data=str(arguments.out / "data"), workers=arguments.workers
            )
    except AllConfigs:
        done = {"configs": meter.said}
    meter.enter("end")
    record = {
        "stages": {name: meter.spent[name].rounded() for name in STAGES if name in meter.spent},
        "summary": {key: value for key, value in done.items() if key not in ("path", "dropped", "failures", "causes")},
    }
    (arguments.out / "inside.json").write_text(json.dumps(record, indent=1) + "\n")


@dataclass
class Spent:
    """What a stage took: seconds, MiB, and MB on disk."""

    wall_s: float = 0.0
    flow_processor_s: float = 0.0
    workers_processor_s: float = 0.0
    flow_peak_mib: float = 0.0
    disk_mb: Counter = field(default_factory=Counter)

    def rounded(self) -> dict:
        """As JSON data."""
        times = {name: round(getattr(self, name), 1) for name in list(vars(self))[:3]}
        disk = {name: round(size, 1) for name, size in self.disk_mb.items()}
        return {**times, "flow_peak_mib": round(self.flow_peak_mib), "disk_mb": disk}


class Meter:
    """What each stage took: `enter` closes the books of one and opens those of the next."""

    def __init__(self, out: Path) -> None:
        self.out, self.stage, self.said = out, "list", ""
        self.spent: dict[str, Spent] = {}
        self._disk: dict[str, float] = {}
        self._at = self._now(full=True)

    def enter(self, stage: str) -> None:
        """The stage so far has ended."""
        full = {stage, self.stage} != {"fetch", "collapse"}  # these take turns, a thousand entries each
        now = self._now(full)
        spent = self.spent.setdefault(self.stage, Spent())
        spent.wall_s += now[0] - self._at[0]
        spent.flow_processor_s += now[1] - self._at[1]
        spent.workers_processor_s += max(0.0, now[2] - self._at[2])
        spent.flow_peak_mib = max(spent.flow_peak_mib, peak_mib())
        if full:
            disk = {name: size_mb(self.out / name) for name in ("data", "hf")}
            spent.disk_mb.update({name: size - self._disk.get(name, 0.0) for name, size in disk.items()})
            self._disk = disk
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        self.stage, self._at = stage, self._now(full)

    def _now(self, full: bool) -> tuple[float, float, float]:
        return time.monotonic(), time.process_time(), children_s() if full else 0.0


def children_s() -> float:
    """Processor seconds of this process's children, and of theirs that have ended."""
    pids = {int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}
    ended = os.times()
    total = ended.children_user + ended.children_system
    for pid in pids:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += sum(map(int, stat[11:15])) / _TICKS
    return total


def peak_mib() -> float:
    """The most memory that this process has had resident since the peak was last reset, in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise OSError("this process tells no VmHWM")


def size_mb(root: Path) -> float:
    """What files below a directory take on the disk, in MB."""
    return sum(os.lstat(os.path.join(at, n)).st_blocks * 512 for at, d, f in os.walk(root) for n in [*d, *f]) / 1e6


if __name__ == "__main__":
    main()
