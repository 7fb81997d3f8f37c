"""How good answers are: do they parse, pass the policy, match, and compute what eager computes."""

import ast
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from agent.learning.answers import files_of
from agent.learning.reward import unfit
from agent.learning.rewards import Rewards
from passbench.contract import NAMES_FILE, PassFiles
from passbench.policy.check import check_files
from passbench.settings import Settings
from storage.records import Sample

QUICK = Settings(draws=2, calls=2, batch=2, warmup=1, repeats=0, double=False, call_timeout=10, first_call_timeout=30)
MATCHED = ("ok", "wrong", "runtime_error", "timeout")


@dataclass(frozen=True)
class Verdict:
    """How far an answer got. `status` and `reason` are PassBench's, or say what was wrong before."""

    sample: str
    parses: bool = False
    allowed: bool = False
    matches: bool = False
    right: bool = False
    status: str = ""
    reason: str = ""

    def to_row(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


class Judge:
    """Judges answers in `workers` processes on the CPU, where Triton's kernels are interpreted; a context manager."""

    def __init__(self, workers: int) -> None:
        self._rewards = Rewards(["cpu"] * workers, settings=QUICK)

    def __enter__(self) -> "Judge":
        return self

    def __exit__(self, *error: object) -> None:
        self._rewards.close()

    def judge(self, pairs: Sequence[tuple[Sample, str]], variants: int = 1) -> list[Verdict]:
        """Verdicts on (sample, answer), in order, each on the first `variants` variants of its sample."""
        read = [_read(sample, answer) for sample, answer in pairs]
        jobs = [
            (replace(sample, variants=sample.variants[:variants]), files)
            for (sample, _), (files, verdict) in zip(pairs, read, strict=True)
            if verdict.allowed
        ]
        rewards = iter(self._rewards.score(jobs)) if jobs else iter(())
        done = []
        for _, verdict in read:
            if verdict.allowed:
                reward = next(rewards)
                matches, right = reward.status in MATCHED, reward.value > 0
                verdict = replace(verdict, matches=matches, right=right, status=reward.status, reason=reward.reason)
            done.append(verdict)
        return done


def _read(sample: Sample, answer: str) -> tuple[dict[str, str], Verdict]:
    files = files_of(answer)
    if not files or (reason := unfit(files)):
        return files, Verdict(sample.sample, status="no files", reason="" if not files else reason)
    try:
        for name, text in files.items():
            if name != NAMES_FILE:
                ast.parse(text)
        names = tuple(json.loads(files[NAMES_FILE]))
        if not names or any(f"{name}.py" not in files for name in names):
            return files, Verdict(sample.sample, status="does not parse", reason="the list names what is not there")
    except (SyntaxError, ValueError) as error:
        return files, Verdict(sample.sample, status="does not parse", reason=str(error)[:200])
    findings = check_files(PassFiles(names, files, ()))
    if findings:
        return files, Verdict(
            sample.sample, True, status="rejected", reason=f"{findings[0].rule}: {findings[0].message}"
        )
    return files, Verdict(sample.sample, True, True)


def shares(verdicts: Sequence[Verdict]) -> dict[str, float]:
    """The share of verdicts that got so far."""
    count = max(1, len(verdicts))
    return {name: sum(getattr(v, name) for v in verdicts) / count for name in ("parses", "allowed", "matches", "right")}
