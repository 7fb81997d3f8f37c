"""Concurrent publishers killed at random instants: is anything lost, half visible or out of order?

    python -m benchmarks.storage.publish_kills [--publishes 50] [--publishers 4] [--seed 0]

Each publisher is a process that adds one row to the newest version (`Store.updating`), or now and then collects
garbage, and acknowledges what it published. Every other one is killed (SIGKILL) at a random instant of its life. A
reader keeps opening and verifying the newest version meanwhile. In the end: every version verifies, each has its
parent's rows and one more, the numbering has no gaps, no acknowledged row is missing, and nothing is left of the
killed. Prints a JSON record, as those in publish_kills.jsonl; exits 1 if one of these does not hold.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from storage.versions.garbage import collect
from storage.versions.store import Store, Version
from tests.support.stores import NOTHING, names, subgraphs

COLLECTS = 0.15
"""Share of the processes that collect garbage rather than publish."""


@dataclass
class Running:
    """A publisher at work; `killed_at` in seconds after its start, None where it is spared."""

    row: str
    pipe: int
    started: float
    killed_at: float | None


@dataclass
class Tally:
    """What happened; `acknowledged` are rows that a publisher said are published."""

    acknowledged: list[str] = field(default_factory=list)
    killed: int = 0
    collections: int = 0
    failed: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


def publish(store: Store, row: str) -> None:
    """Add a row to the newest version."""
    with store.updating() as newest:
        rows = [*names(newest), row] if newest else [row]
        tables = {("fusible", "train"): subgraphs(*rows)}
        store.publish(tables, kind="build", parent=newest, **NOTHING)


def start(store: Store, row: str, killed_at: float | None) -> tuple[int, Running]:
    """Fork a publisher (a collector for a row that starts with "gc"): its process id, and what is known of it."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        status = 1
        try:
            collect(store) if row.startswith("gc") else publish(store, row)
            os.write(write, row.encode())
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    return pid, Running(row, read, time.monotonic(), killed_at)


def read_on(store: Store, stop: Path) -> int:
    """Fork a reader that verifies the newest version again and again until `stop` exists; exits 1 if that fails."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        while not stop.exists():
            newest = store.latest()
            if newest is not None:
                newest.verify()
                assert len(names(newest)) == newest.manifest.rows("fusible")
        status = 0
    finally:
        os._exit(status)


def run(store: Store, publishes: int, publishers: int, seed: int) -> Tally:
    """Start publishers, kill every other one, until so many rows are acknowledged."""
    draw = random.Random(seed)
    tally, running, number = Tally(), {}, 0
    while len(tally.acknowledged) < publishes or running:
        while len(running) < publishers and len(tally.acknowledged) < publishes:
            usual = sorted(tally.seconds)[len(tally.seconds) // 2] if tally.seconds else 0.3
            killed_at = draw.uniform(0, 1.2 * usual) if draw.random() < 0.5 else None
            kind = "gc" if draw.random() < COLLECTS else "row"
            pid, process = start(store, f"{kind}-{number:04d}", killed_at)
            running[pid] = process
            number += 1
        for pid, process in list(running.items()):
            age = time.monotonic() - process.started
            if process.killed_at is not None and age >= process.killed_at:
                os.kill(pid, signal.SIGKILL)
                process.killed_at = None
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                end(running.pop(pid), status, tally)
        time.sleep(0.001)
    return tally


def end(process: Running, status: int, tally: Tally) -> None:
    """Count a publisher that is over."""
    said = os.read(process.pipe, 64).decode()
    os.close(process.pipe)
    if process.row.startswith("gc"):
        tally.collections += 1
    elif said:
        tally.acknowledged.append(said)
        tally.seconds.append(time.monotonic() - process.started)
    if os.WIFSIGNALED(status):
        tally.killed += 1
    elif status:
        tally.failed.append(process.row)


def problems(store: Store, tally: Tally) -> list[str]:
    """What does not hold in the end; empty if all is well."""
    found = [f"{row} failed without being killed" for row in tally.failed]
    versions = store.versions()
    if [v.name for v in versions] != [f"v{i}" for i in range(1, len(versions) + 1)]:
        found.append(f"gaps in {[v.name for v in versions]}")
    before: Version | None = None
    for version in versions:
        version.verify()
        rows, earlier = names(version), names(before) if before else []
        if rows[:-1] != earlier or version.manifest.parent != (before.name if before else None):
            found.append(f"{version.name} is not its parent and one row more")
        before = version
    if missing := set(tally.acknowledged) - set(names(before) if before else []):
        found.append(f"acknowledged but lost: {sorted(missing)}")
    collect(store)
    if left := [path.name for path in (store.root / "versions" / ".staging").iterdir()]:
        found.append(f"left behind: {left}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--publishes", type=int, default=50)
    parser.add_argument("--publishers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        store, stop = Store(Path(directory) / "data"), Path(directory) / "stop"
        reader = read_on(store, stop)
        began = time.monotonic()
        tally = run(store, given.publishes, given.publishers, given.seed)
        seconds = time.monotonic() - began
        stop.touch()
        _, status = os.waitpid(reader, 0)
        found = problems(store, tally) + (["the reader saw a bad version"] if status else [])
        record = {
            **vars(given),
            "acknowledged": len(tally.acknowledged),
            "versions": len(store.names()),
            "killed": tally.killed,
            "collections": tally.collections,
            "seconds": round(seconds, 1),
            "problems": found,
        }
    print(json.dumps(record))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
