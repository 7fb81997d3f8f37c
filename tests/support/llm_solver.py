"""A scripted model that solves tasks with passes it is given, and errs on the way as models do.

Its attempts at a sample follow different plans. A plan's name and the attempt's number stand in its first answer, so
that a conversation can go on anywhere; only how often each sample was begun is remembered.
"""

import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from passbench.contract import NAMES_FILE
from tests.support.llm_server import Reply, _usage

Files = Mapping[str, str]

NO_MATCH = """\
import torch


def pattern(x):
    return torch.frac(torch.erfc(x))


def replacement_args(x):
    return (x,)


@torch.fx.wrap
def nothing(x):
    return torch.empty_like(x)


def replacement_func():
    return nothing
"""

_STORE = re.compile(r"(tl\.store\(.*, )(\w+)((?:, mask=[^)]*)?\))$", re.MULTILINE)
_WRAPPER = re.compile(r"(@torch\.fx\.wrap\ndef \w+\((\w+)[^)]*\):\n)")
_SAMPLE = re.compile(r"Task (\S+):")
_PLAN = re.compile(r"^Plan (\w+), attempt (\d+)\.")


def wrong(files: Files) -> dict[str, str]:
    """The pass with 1025 in all that it stores: wrong at every level unless what it should store is as large, and true
    as a bool."""
    return _changed(files, _STORE, r"\g<1>\2 * 0 + 1025\3")


def cheating(files: Files) -> dict[str, str]:
    """The pass with a read of a value in what launches its kernels."""
    return _changed(files, _WRAPPER, r"\1    \2.max().item()\n")


def straight(files: Files) -> list[Reply]:
    return [_read(), Reply(_writes(files)), Reply([("check", {})]), Reply([("evaluate", {})]), _SUBMIT]


def clumsy(files: Files) -> list[Reply]:
    """An unknown tool, a call that is no JSON, a module that is not there."""
    missing = [("write_file", {"name": NAMES_FILE, "content": '["missing"]'}), ("evaluate", {})]
    return [
        Reply([("compile_pass", {"fast": True})]),
        Reply([("write_file", '{"name": "fuse.py", "content": ')]),
        Reply(missing),
        Reply(_writes(files)),
        Reply([("evaluate", {})]),
        _SUBMIT,
    ]


def learner(files: Files) -> list[Reply]:
    """A pass that is wrong, then the right one."""
    return [
        Reply([*_writes(wrong(files)), ("evaluate", {})]),
        Reply([("view_files", {"name": NAMES_FILE})]),
        Reply([*_writes(files), ("check", {})]),
        Reply([("evaluate", {})]),
        _SUBMIT,
    ]


def cheat(files: Files) -> list[Reply]:
    """A pass that calls torch, then the right one."""
    return [
        Reply([*_writes(cheating(files)), ("evaluate", {})]),
        Reply([("check", {})]),
        Reply([*_writes(files), ("evaluate", {})]),
        _SUBMIT,
    ]


def wanderer(files: Files) -> list[Reply]:
    """A pass that is wrong, and then the same call until the loop is seen."""
    return [Reply([*_writes(wrong(files)), ("evaluate", {})]), *([Reply([("view_files", {})])] * 6)]


def hopeless(files: Files) -> list[Reply]:
    """A pass that matches nothing, an answer without a call, and the end."""
    none = {"nothing.py": NO_MATCH, NAMES_FILE: '["nothing"]'}
    return [Reply([*_writes(none), ("evaluate", {})]), Reply(text="I see nothing better."), _SUBMIT]


PLANS: dict[str, Callable[[Files], list[Reply]]] = {
    plan.__name__: plan for plan in (straight, clumsy, learner, cheat, wanderer, hopeless)
}
EXITS = {name: "loop" if name == "wanderer" else "submitted" for name in PLANS}
"""How an attempt of each plan ends."""


class Asked(NamedTuple):
    """A request: the attempt that it belongs to, and how many answers that has had before."""

    sample: str
    attempt: int
    plan: str
    step: int


class Solver:
    """`solutions`: the files of a right pass for each sample.

    Once half of all answers that `attempts` attempts at each sample need have been given, a request is held for ever:
    `held` is set, and its client is to be killed. `asked` has all requests in order, that one included; `bill` the
    tokens of all other answers, input and output.
    """

    def __init__(self, solutions: Mapping[str, Files], attempts: int) -> None:
        self._replies = {(s, name): plan(files) for s, files in solutions.items() for name, plan in PLANS.items()}
        self._order = {sample: number for number, sample in enumerate(solutions)}
        self.steps = sum(
            len(self._replies[sample, self.plan(sample, attempt)])
            for sample in solutions
            for attempt in range(1, attempts + 1)
        )
        self.asked: list[Asked] = []
        self.bill: Counter[str] = Counter()
        self.held = threading.Event()
        self.holding: Asked | None = None
        self._begun: Counter[str] = Counter()
        self._lock = threading.Lock()

    def plan(self, sample: str, attempt: int) -> str:
        """The plan of an attempt, numbered from 1: consecutive attempts at all samples go through all plans."""
        return list(PLANS)[(self._order[sample] * 3 + attempt - 1) % len(PLANS)]

    def __call__(self, messages: list[dict]) -> Reply:
        with self._lock:
            asked = self._which(messages)
            self.asked.append(asked)
            hold = not self.held.is_set() and asked.step > 0 and len(self.asked) > self.steps // 2
            if hold:
                self.holding = asked
            reply = self._replies[asked.sample, asked.plan][asked.step]
            if asked.step == 0:
                reply = Reply(reply.calls, f"Plan {asked.plan}, attempt {asked.attempt}. {reply.text or ''}".strip())
            if not hold:
                self.bill.update(_usage({"messages": messages}, reply))
        if hold:
            self.held.set()
            threading.Event().wait()
        return reply

    def _which(self, messages: list[dict]) -> Asked:
        sample = _SAMPLE.match(messages[1]["content"])[1]
        answers = [m for m in messages if m["role"] == "assistant"]
        if answers:
            said = _PLAN.match(answers[0]["content"])
            return Asked(sample, int(said[2]), said[1], len(answers))
        self._begun[sample] += 1
        attempt = self._begun[sample]
        return Asked(sample, attempt, self.plan(sample, attempt), 0)


_SUBMIT = Reply([("submit", {})])


def _read() -> Reply:
    return Reply([("read_task", {"variant": 0})])


def _writes(files: Files) -> list[tuple[str, dict]]:
    return [("write_file", {"name": name, "content": text}) for name, text in files.items()]


def _changed(files: Files, what: re.Pattern, to: str) -> dict[str, str]:
    changed = {name: what.sub(to, text) if name.endswith(".py") else text for name, text in files.items()}
    if changed == dict(files):
        raise ValueError(f"a pass without {what.pattern}: {', '.join(files)}")
    return changed
