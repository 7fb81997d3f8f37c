"""PassBench as one number between 0 and 1, for reinforcement learning and for choosing among answers.

With s the geometric mean of a pass's speedups over the variants of a sample, the reward is s / (1 + s): 0.5 is eager's
speed, 0.67 twice as fast, 0.33 half as fast. It is 0 unless every variant is correct at the level asked for. Without a
GPU times mean nothing, and s counts as 1: whatever is correct earns 0.5.
"""

import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from passbench.bench import Bench
from passbench.contract import NAMES_FILE, write_pass_dir
from passbench.names import CLOCKS
from passbench.result import VariantResult
from passbench.score import says_something
from passbench.settings import Settings
from storage.errors import PassNetError
from storage.records import Sample

LEVEL = -5
"""The tolerance level of PyTorch's own tests."""

SETTINGS = Settings(double=False, timing_budget=10.0)
"""A benchmark as a reward needs it: all layers of integrity, without the comparison with double precision."""

CHECK_ONLY = Settings(double=False, draws=2, calls=4, batch=2, warmup=2, repeats=0)
"""The same where times mean nothing: as few calls as correctness needs."""

Files = Mapping[str, str] | Path
"""A pass: text by file name, or a directory."""

_FILE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,79}\.py")
_MOST_FILES, _MOST_CHARACTERS = 32, 256_000


@dataclass(frozen=True)
class Reward:
    """What a pass has earned at a sample.

    `value`: from 0 to 1, see the module. `speedup`: the geometric mean over variants, None where the value is 0 or
    times mean nothing. `status`: "ok", or that of the first variant that earned nothing; `reason` says why. `seconds`:
    what PassBench took.
    """

    value: float
    speedup: float | None
    status: str
    reason: str = ""
    seconds: float = 0.0


def value_of(speedup: float) -> float:
    """The reward of a correct pass with this speedup, a positive number: s / (1 + s). Rises with it, and stays below
    1."""
    return speedup / (1.0 + speedup) if speedup < 1e15 else 1.0


def reward_of(results: Sequence[VariantResult], level: int = LEVEL, clock: str = "e2e") -> Reward:
    """The reward of the results of one pass at one sample, by clock "e2e" or "device".

    Variants on which eager itself fails are left out. 0 where nothing is left, where a variant is not "ok" or not
    correct at `level`, and where the clock has no time for one though a GPU measured.
    """
    check_terms(level, clock)
    seconds = sum(result.seconds for result in results)
    counted = [r for r in results if says_something({"status": r.status, "reason": r.reason})]
    if not counted:
        return Reward(0.0, None, "runtime_error", "eager fails on every variant", seconds)
    for result in counted:
        if result.status != "ok" or result.t_min is None:
            return Reward(0.0, None, result.status, result.reason, seconds)
        if result.t_min > level:
            reason = f"correct at t = {result.t_min} only, not at {level}: {result.reason}"
            return Reward(0.0, None, "wrong", reason, seconds)
    if not all(result.times_meaningful for result in counted):
        return Reward(value_of(1.0), None, "ok", "not timed: there is no GPU", seconds)
    speedups = [result.speedup(clock) for result in counted]
    if not all(speedups):
        return Reward(0.0, None, "runtime_error", f"clock {clock!r} has no time for a variant", seconds)
    speedup = math.exp(math.fsum(map(math.log, speedups)) / len(speedups))
    return Reward(value_of(speedup), speedup, "ok", "", seconds)


def check_terms(level: int, clock: str) -> None:
    """Raises PassNetError for a level or a clock that there is not."""
    if not -10 <= level <= 1:
        raise PassNetError(f"level {level} is none: correctness has levels from -10 to 1")
    if clock not in CLOCKS:
        raise PassNetError(f"clock {clock!r} is none: there are {', '.join(CLOCKS)}")


def unfit(files: Mapping[str, str]) -> str:
    """Why files, by name, cannot be a pass directory; empty if they can."""
    if len(files) > _MOST_FILES:
        return f"{len(files)} files; a pass has at most {_MOST_FILES}"
    for name, text in files.items():
        if name != NAMES_FILE and not _FILE.fullmatch(name):
            return f"{name[:80]!r} cannot be a file of a pass: it is {NAMES_FILE} or NAME.py"
        if len(text) > _MOST_CHARACTERS:
            return f"{name} has {len(text)} characters; at most {_MOST_CHARACTERS} are taken"
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            return f"{name} holds characters that UTF-8 cannot"
    return "" if NAMES_FILE in files else f"there is no {NAMES_FILE}"


def earn(bench: Bench, sample: Sample, files: Files, level: int = LEVEL, clock: str = "e2e") -> Reward:
    """The reward of a pass on a bench that is there."""
    check_terms(level, clock)
    if isinstance(files, Path):
        return reward_of(list(bench.run(sample, "pass", files)), level, clock)
    if reason := unfit(files):
        return Reward(0.0, None, "compile_error", reason)
    with tempfile.TemporaryDirectory(prefix="passnet-reward-") as place:
        directory = Path(place) / "pass"
        write_pass_dir(dict(files), directory)
        reward = reward_of(list(bench.run(sample, "pass", directory)), level, clock)
    return reward
