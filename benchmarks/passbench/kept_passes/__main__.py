"""See the package's head."""

import argparse
import faulthandler
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch._dynamo  # a second of each fork that has not imported it

from benchmarks.passbench.kept_passes.both_ways import CORPORA, RECORD
from benchmarks.passbench.kept_passes.helpers import Helper
from benchmarks.passbench.kept_passes.loaded_calls import (
    KeptPass,
    Took,
    eager,
    load,
    measured,
    median_of,
    repeating_eager,
    single_calls,
    written_to,
)
from benchmarks.passbench.kept_passes.things import THINGS, Scene, Thing
from passbench.child.captured_calls import EmptyReplay
from storage.parquet import read_rows
from storage.schema import RESULTS

_TURNS = 20  # of another process and a call's first ones, on one core
_FIRST_CALLS = 60
_LONGEST = 30.0  # seconds that a thing may take


@dataclass(frozen=True)
class Cast:
    """The passes whose calls are timed, and the others."""

    measured: list[KeptPass]
    others: list[KeptPass]


def cast_of(passes: Sequence[KeptPass], most: int, out: Path) -> Cast:
    """Timed are a pass of one launch, one of several, and one that captures, each that of its kind with the fewest
    elements; beside the first a pass that makes eager's calls. Of the others half capture, as far as there are."""
    plain = sorted((one for one in passes if not one.captures), key=lambda one: one.elements)
    captures = sorted((one for one in passes if one.captures), key=lambda one: one.elements)
    launches = lambda one: sum(text.count("Launch(") for text in _texts(one))  # noqa: E731
    first = next(one for one in plain if launches(one) == 1)
    several = next(one for one in plain if launches(one) > 1 and one.name.startswith("fusible"))
    chosen = [first, several, captures[0]]
    left = [[one for one in some if one not in chosen] for some in (plain, captures)]
    others = [*left[0][: most - most // 2], *left[1][: most // 2]]
    return Cast([*chosen, repeating_eager(out, first)], others)


def _texts(one: KeptPass) -> list[str]:
    return [file.read_text("utf-8") for file in one.directory.glob("*.py")]


def _live(pipe: Connection, thing: Thing | None, cast: Cast, device_name: str) -> None:
    """In a fork: what a thing adds. Without a thing: load the passes of the cast, which compiles their kernels."""
    faulthandler.dump_traceback_later(_LONGEST - 1)  # what takes so long
    try:
        pipe.send(_added(thing, cast, torch.device(device_name)) if thing else _compiled(cast, device_name))
    except BaseException:  # a pass raises what it likes; the parent says so
        pipe.send(traceback.format_exc(limit=-3))


def _compiled(cast: Cast, device_name: str) -> list[str]:
    """Names of the passes that can be called here."""
    _open(torch.device(device_name))
    return [one.name for one in (*cast.measured, *cast.others) if load(one, torch.device(device_name), rows=1)]


def _open(device: torch.device) -> None:
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    if device.type == "cuda":
        torch.cuda.set_device(0)
        torch.cuda.synchronize()


def _added(thing: Thing, cast: Cast, device: torch.device) -> dict:
    helpers = [Helper() for _ in range(thing.helpers)]
    core = sorted(os.sched_getaffinity(0))[-2 if len(os.sched_getaffinity(0)) > 1 else 0]
    if len(helpers) == 1:
        helpers[0].pin(core)
    os.sched_setaffinity(0, {core})
    try:
        _open(device)
        graph = EmptyReplay(device) if device.type == "cuda" else None  # as every worker has one
        calls = [*(load(one, device) for one in cast.measured), eager(cast.measured[0], device)]
        scene = Scene(device, calls, cast.others, helpers, [graph])
        before = [measured(calls, device) for _ in range(2)][-1]
        begin = time.monotonic()
        thing.do(scene)
        seconds = time.monotonic() - begin
        after = measured(calls, device)
        row = {"thing": thing.name, "seconds": round(seconds, 3), "of": [one.name for one in calls]}
        row |= {"before": before, "after": after, "later": measured(calls, device)}
        if len(helpers) == 1:
            row["first_calls"] = _first_calls(scene)
        return row
    finally:
        for helper in helpers:
            helper.close()


def _first_calls(scene: Scene) -> list[list[Took]]:
    """Of each call the first, the next nine, and all later ones after a turn of the helper's; then without one."""
    found = []
    for one in scene.measured:
        for helped in (True, False):
            turns = []
            for _ in range(_TURNS if scene.device.type == "cuda" else 2):
                if helped:
                    scene.helpers[0].work(scene.device)
                turns.append(single_calls(one, _FIRST_CALLS if scene.device.type == "cuda" else 12, scene.device))
            parts = (slice(0, 1), slice(1, 10), slice(10, None))
            found.append([median_of([took for turn in turns for took in turn[part]]) for part in parts])
    return found


def in_forks(jobs: Sequence[tuple[Thing | None, Cast]], device: str, seconds: float) -> list[dict | list | str]:
    """The answers of forks that live side by side; a text says why there is none."""
    context = get_context("fork")
    running = []
    for thing, cast in jobs:
        ours, theirs = context.Pipe()
        process = context.Process(target=_live, args=(theirs, thing, cast, device))
        process.start()
        theirs.close()
        running.append((process, ours))
    end, answers = time.monotonic() + seconds, []
    for process, pipe in running:
        try:
            there = pipe.poll(max(0.0, end - time.monotonic()))
            answers.append(pipe.recv() if there else f"not done after {seconds:.0f} s")
        except EOFError:
            answers.append("the process ended")
        process.kill()
        process.join()
    return answers


def table_of(rows: Sequence[dict]) -> list[str]:
    """What each thing adds to a call of each pass: until it returns, and from then on until the device is done."""
    names = rows[0]["of"]
    lines = [f"{number}: {name}" for number, name in enumerate(names)]
    head = "".join(f"  {number}: host  rest" for number in range(len(names)))
    lines += ["", f"{'us a call':48}{head}"]
    base = [median_of([Took(*row["before"][n]) for row in rows]) for n in range(len(names))]
    lines.append(f"{'before, median of all processes':48}" + "".join(f"  {t.host:7.2f} {t.rest:5.2f}" for t in base))
    for row in rows:
        cells = []
        for n in range(len(names)):
            host, rest = (min(row["after"][n][k], row["later"][n][k]) - row["before"][n][k] for k in (0, 1))
            cells.append(f"  {host:+7.2f} {rest:+5.2f}")
        lines.append(f"{row['thing'][:47]:48}{''.join(cells)}")
    for row in rows:
        if "first_calls" in row:
            lines += ["", "host and rest of the first call, of calls 2 to 10, and of later ones"]
            for number, parts in enumerate(row["first_calls"]):
                how = "after another process" if number % 2 == 0 else "without it"
                cells = "   ".join(f"{host:7.2f} {rest:7.2f}" for host, rest in parts)
                lines.append(f"  {number // 2} {how:22} {cells}")
    return lines


def _compiled_cast(given: argparse.Namespace, scratch: Path) -> Cast:
    """The passes that can be called here, with their kernels compiled: several processes at a time compile."""
    rows = [row for row in read_rows(given.rows, RESULTS) if row["author"] == "distill" and row["pass_files"]]
    cast = cast_of(written_to(scratch, rows, CORPORA, 4 * given.others + 40), given.others, scratch)
    alone = [Cast([one], []) for one in (*cast.measured, *cast.others)]
    failed = set()
    for first in range(0, len(alone), given.jobs):
        some = alone[first : first + given.jobs]
        answers = in_forks([(None, one) for one in some], given.device, _LONGEST)
        for one, answer in zip(some, answers, strict=True):
            if isinstance(answer, str):
                failed.add(one.measured[0].name)
                print(f"left out: {one.measured[0].name}: {answer.strip().splitlines()[-1][:150]}", flush=True)
    return Cast(*([one for one in some if one.name not in failed] for some in (cast.measured, cast.others)))


def main() -> None:
    """See the package's head."""
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.passbench.kept_passes", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="a JSON line of each thing; the table is printed")
    parser.add_argument("--rows", type=Path, default=RECORD, help="rows with the text of passes")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--others", type=int, default=20, help="other passes")
    parser.add_argument("--budget", type=float, default=58.0, help="seconds after which no further thing is begun")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes that compile")
    parser.add_argument("--only", default="", help="things whose names have this in them")
    given = parser.parse_args()
    begin = time.monotonic()
    torch.set_num_threads(1)  # forks have no threads of their parent's
    os.environ["TEARDOWN_CUPTI"] = "1"  # as every worker has it
    with tempfile.TemporaryDirectory(prefix="kept-passes-") as scratch:
        os.environ["TRITON_CACHE_DIR"] = str(Path(scratch) / "triton")
        cast = _compiled_cast(given, Path(scratch))
        captures = sum(one.captures for one in cast.others)
        print(f"{time.monotonic() - begin:.0f} s; {len(cast.others)} other passes, {captures} capture", flush=True)
        found = []
        for thing in THINGS:
            if given.only not in thing.name or (thing.needs_gpu and given.device == "cpu"):
                continue
            if time.monotonic() - begin > given.budget:
                print(f"not begun: {thing.name}")
                continue
            (answer,) = in_forks([(thing, cast)], given.device, _LONGEST)
            if isinstance(answer, dict):
                found.append(answer)
                with given.out.open("a", encoding="utf-8") as stream:
                    print(json.dumps(answer), file=stream)
            else:
                print(f"failed: {thing.name}: {answer.strip()[-300:]}", flush=True)
    if not found:
        sys.exit("nothing was measured")
    print("\n".join(table_of(found)))
    print(f"{time.monotonic() - begin:.0f} s; torch {torch.__version__}, Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
