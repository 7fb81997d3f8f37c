"""Tries the attacks and the honest passes of `tests.passbench.attacks.attack_table`.

    python -m tests.passbench.attacks.run_attacks [--device cpu|cuda] [--repeats N] [--in-a-row M]
        [--honest-only | --attacks-only] [--all-layers] [--part I/N] [--budget SECONDS] [--out DIR]
        [--had VERDICTS.parquet ...]

runs them all from the repository root: one line each, exit 1 on anything unexpected, and a record of it in DIR. Needs
torch, triton, numpy, pandas and pyarrow. `--had` names records of earlier calls, whose verdicts count towards N: what
has the fewest comes first, until each has N.

An attack is tried with all layers of integrity, then without the layer that is expected to fire first, then without
that and the next. Where nothing fires any more, nothing may be gained either: the verdict is that of the same pass
without the attack, or the record says that it works.
"""

import argparse
import itertools
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pandas as pd
import torch

from passbench.bench import Bench
from passbench.settings import Settings
from storage.records import Sample
from tests.passbench.attacks.attack_kinds import Step
from tests.passbench.attacks.attack_table import ATTACKS, HONEST
from tests.support.processes import begun_in

SETTINGS = {  # of three calls in an exchange the first is rehearsed
    "cpu": Settings(draws=2, calls=4, batch=3, warmup=2, repeats=0, double=False, first_call_timeout=60),
    "cuda": Settings(draws=4, calls=20, batch=4, warmup=4, repeats=0, double=False, first_call_timeout=120),
}
_LEFT = b"sleep\x0097531"
_RECORDED_EVERY = 5.0  # seconds


@dataclass(frozen=True)
class Trial:
    """One pass to be tried: its directory, sample, the layers that are off, and what is expected."""

    name: str
    directory: Path
    sample: Sample
    off: frozenset[str]
    expected: Step


def trials(device: str, *, attacks: bool = True, honest: bool = True, all_layers: bool = False) -> Iterator[Trial]:
    """Everything that makes sense on a device. `all_layers`: attacks with all layers alone, and none that the static
    policy refuses, which needs no device."""
    for attack in ATTACKS if attacks else ():
        steps = [s for s in attack.steps[:1] if s.layer != "static_policy"] if all_layers else attack.steps
        for number, step in enumerate(steps):
            if device in attack.devices:
                yield Trial(attack.name, attack.directory, _made(attack.sample), attack.off(number), step)
    for one in HONEST if honest else ():
        if device in one.devices:
            expected = Step("none", ("ok",), most=one.most)
            yield Trial(one.name, one.directory, _made(one.sample), frozenset(), expected)


def part_of(chosen: Sequence[Trial], part: int, parts: int) -> list[Trial]:
    """The trials of one of several processes. A process starts a benchmark for each set of layers that are off, which
    takes seconds, so that the few trials of a rare set stay together, where there is least to do; those of a common one
    are shared out."""
    shares: list[list[Trial]] = [[] for _ in range(parts)]
    groups = [list(alike) for _, alike in itertools.groupby(sorted(chosen, key=_layers_off), key=_layers_off)]
    for group in sorted(groups, key=len, reverse=True):
        if len(group) >= 2 * parts:
            for number, share in enumerate(shares):
                share += group[number::parts]
        else:
            least = min(shares, key=len)
            least += group
    return shares[part]


def _layers_off(trial: Trial) -> list[str]:
    return sorted(trial.off)


@cache
def _made(sample: Callable[[], Sample]) -> Sample:
    return sample()


def left_behind(bench: Bench) -> list[int]:
    """Processes that `leaves_process` has left, of those that began in this benchmark's workers."""
    return [pid for pid in begun_in([str(bench._scratch)]) if _LEFT in _command(pid)]


def _command(pid: int) -> bytes:
    with suppress(OSError):  # it has ended meanwhile
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def run(bench: Bench, trial: Trial) -> Iterator[dict]:
    """One row per variant of a trial; a last one if the pass has left processes."""
    for result in bench.run(trial.sample, "pass", trial.directory):
        yield {
            "name": trial.name,
            "off": " ".join(sorted(trial.off)),
            "status": result.status,
            "t_min": result.t_min,
            "speedup": result.speedup("e2e"),
            "speedup_device": result.speedup("device"),
            "reason": result.reason,
            "expected": str(trial.expected),
            "ok": trial.expected.fits(result),
            "seconds": result.seconds,
        }
    if remaining := left_behind(bench):
        yield {"name": trial.name, "off": "", "status": f"left processes {remaining}", "expected": "none", "ok": False}


def attempted(bench: Bench, trial: Trial) -> Iterator[dict]:
    """The rows of a trial; a fault of PassBench is one too, so that the others are still tried."""
    try:
        yield from run(bench, trial)
    except Exception as error:  # whatever it is, it is reported
        failed = f"PassBench raised {type(error).__name__}: {error}"
        yield {"name": trial.name, "off": "", "status": failed, "expected": str(trial.expected), "ok": False}


def in_a_row(trial: Trial, times: int) -> Trial:
    """The trial with each variant so many times, which its process gets one after another."""
    return replace(trial, sample=replace(trial.sample, variants=trial.sample.variants * times))


def verdicts_had(records: Sequence[Path], device: str) -> Counter[tuple[str, str]]:
    """How many verdicts of a device earlier calls have that were as expected, by the pass's name and the layers that
    are off."""
    rows = [pd.read_parquet(record, columns=["device", "ok", "name", "off"]) for record in records]
    return Counter(row[2:] for some in rows for row in some.itertuples(index=False) if row.device == device and row.ok)


def lacking(trial: Trial, repeats: int, had: Mapping[tuple[str, str], int]) -> int:
    """How many verdicts of `repeats` a trial lacks."""
    return max(0, repeats - had.get((trial.name, " ".join(_layers_off(trial))), 0))


def turns_of(
    chosen: Sequence[Trial], repeats: int, in_one: int, had: Mapping[tuple[str, str], int]
) -> list[tuple[int, Trial]]:
    """Trials in the order in which they are run, each as often as it lacks verdicts of `repeats`, `in_one` at a time,
    with the number of those that it has by then. The fewest come first."""
    turns = [(n, one) for one in chosen for n in range(repeats - lacking(one, repeats, had), repeats, in_one)]
    return sorted(turns, key=lambda turn: turn[0])


def run_all(
    device: str, turns: Sequence[tuple[int, Trial]], budget: float = math.inf, out: Path | None = None
) -> pd.DataFrame:
    """Run trials in order, grouped by the layers that are off, and print one line each. No trial is begun after
    `budget` seconds, and no further variant of one. `repeat` of a row is the number that its trial came with. `out`
    gets a record every few seconds, for a run that is killed."""
    rows: list[dict] = []
    end, recorded = time.monotonic() + budget, time.monotonic()
    for off in sorted({trial.off for _, trial in turns}, key=sorted):
        if time.monotonic() > end:
            break
        settings = Settings(**{**vars(SETTINGS[device]), "off": off})
        with Bench(device, settings) as bench:
            for repeat, trial in (turn for turn in turns if turn[1].off == off):
                for row in attempted(bench, trial) if time.monotonic() < end else ():
                    rows.append({"device": device, "repeat": repeat, **row})
                    reason = " ".join(str(row.get("reason", "")).split())[:100]
                    verdict = "" if row["ok"] else f"  EXPECTED {row['expected']}"
                    print(f"{row['name']:24} {row['off']:32} {row['status']:14} {reason}{verdict}", flush=True)
                    if out is not None and time.monotonic() > recorded + _RECORDED_EVERY:
                        write_record(pd.DataFrame(rows), out, device)
                        recorded = time.monotonic()
                    if time.monotonic() > end:
                        break
    return pd.DataFrame(rows)


def write_record(table: pd.DataFrame, out: Path, device: str) -> None:
    """`attacks-DEVICE.parquet` and, for people, `attacks-DEVICE.md`."""
    out.mkdir(parents=True, exist_ok=True)
    record = out / f"attacks-{device}.parquet"
    table.to_parquet(record.with_suffix(".new"), index=False)
    record.with_suffix(".new").replace(record)
    columns = ["name", "off", "status", "reason", "expected", "ok"]
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    for row in table[columns].fillna("").itertuples(index=False):
        cells = [" ".join(str(cell).split())[:160].replace("|", "\\|") for cell in row]
        lines.append("| " + " | ".join(cells) + " |")
    head = f"# Attacks and honest passes on {device}\n\ntorch {torch.__version__}; {len(table)} verdicts, "
    head += f"{int((~table['ok']).sum())} unexpected.\n\n"
    (out / f"attacks-{device}.md").write_text(head + "\n".join(lines) + "\n")


def main() -> None:
    """See the module's head."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=sorted(SETTINGS), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeats", type=int, default=1, help="how often each is run")
    parser.add_argument("--in-a-row", type=int, default=1, help="of these, so many in one process")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--honest-only", action="store_true")
    which.add_argument("--attacks-only", action="store_true")
    parser.add_argument("--all-layers", action="store_true", help="attacks with all layers on, and none without")
    parser.add_argument("--part", default="0/1", metavar="I/N", help="the I-th of N parts of the trials, from 0")
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds after which no further trial is begun")
    parser.add_argument("--only", help="names, separated by commas")
    parser.add_argument("--had", type=Path, nargs="*", default=[], help="records whose verdicts count as repeats")
    parser.add_argument("--out", type=Path, help="directory for the record")
    arguments = parser.parse_args()
    attacks, honest = not arguments.honest_only, not arguments.attacks_only
    chosen = list(trials(arguments.device, attacks=attacks, honest=honest, all_layers=arguments.all_layers))
    if arguments.only:
        chosen = [t for t in chosen if t.name in arguments.only.split(",")]
    part, parts = map(int, arguments.part.split("/"))
    repeats, in_one, had = arguments.repeats, arguments.in_a_row, verdicts_had(arguments.had, arguments.device)
    left_over = sorted(chosen, key=lambda trial: -lacking(trial, repeats, had))  # so that parts take equally long
    mine = part_of([trial for trial in left_over if lacking(trial, repeats, had)], part, parts)
    turns = [(number, in_a_row(trial, in_one)) for number, trial in turns_of(mine, repeats, in_one, had)]
    if not turns:
        print(f"0 verdicts: nothing of {len(chosen)} trials is left to this process")
        return
    begin = time.monotonic()
    table = run_all(arguments.device, turns, arguments.budget, arguments.out)
    if table.empty:
        sys.exit(f"no trial was begun within {arguments.budget:.0f} s")
    left = len(turns) - len(table.drop_duplicates(["name", "off", "repeat"]))
    if arguments.out is not None:
        write_record(table, arguments.out, arguments.device)
    unexpected = table[~table["ok"]]
    seconds = time.monotonic() - begin
    print(f"{len(table)} verdicts, {len(unexpected)} unexpected; {seconds:.0f} s; torch {torch.__version__}")
    if left:
        print(f"{left} trials were not begun within {arguments.budget:.0f} s")
    for row in unexpected.itertuples():
        print(f"UNEXPECTED {row.name} without [{row.off}]: {row.status} {row.reason}; expected {row.expected}")
    sys.exit(len(unexpected) > 0)


if __name__ == "__main__":
    main()
