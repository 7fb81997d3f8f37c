"""Launches of a CUDA graph that need nothing of each other, side by side. Trusted code that a pass may use.

Within a function that `captured` records, `branch(number, function, *arguments)` runs a function on the stream of that
branch; branch 0 is the recorded stream itself. It waits for the branches that have made its arguments, and for nothing
else. When the recorded function returns, the recorded stream waits for all branches.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

MOST_BRANCHES = 4
"""The branches of a recording, the recorded stream among them."""

ARGUMENTS = (torch.Tensor, int, float, str, torch.dtype, type(None))
"""What a captured function and a branch may get. Of tensors in containers nobody would see which branch made them."""

_here = threading.local()
"""`active`: the branches of the recording that this thread makes; `streams`: by device, those of branches from 1 on."""


@dataclass
class _Branches:
    """The branches of one call of a recorded function, and where its tensors were made.

    What branches read and make lives until they are joined: memory that is freed on one stream is used again on this
    stream at once, while another branch may still read it.
    """

    recorded: torch.cuda.Stream
    given: frozenset[int]
    begin: torch.cuda.Event | None = None
    made: dict[int, tuple[int, torch.cuda.Event]] = field(default_factory=dict)
    latest: dict[int, torch.cuda.Event] = field(default_factory=dict)
    kept: list[Any] = field(default_factory=list)
    running: bool = False

    def run(self, number: int, function: Callable, arguments: Sequence[Any]) -> Any:
        """What the function returns for these arguments, computed in the branch of this number."""
        if self.begin is None:
            self.begin = self.recorded.record_event()
        stream = self.recorded if number == 0 else self._streams()[number - 1]
        if number not in self.latest and number > 0:
            stream.wait_event(self.begin)
        for argument in arguments:
            if isinstance(argument, torch.Tensor) and _memory(argument) not in self.given:
                branch, event = self.made.get(_memory(argument), (0, None))
                if branch != number:
                    stream.wait_event(event or self.recorded.record_event())
        self.running = True
        try:
            with torch.cuda.stream(stream):
                result = function(*arguments)
        finally:
            self.running = False
            self.latest[number] = stream.record_event()  # of a function that raises, too: what it launched is joined
            self.kept += arguments
        made = leaves_of(result)
        self.kept += made
        for leaf in made:
            if isinstance(leaf, torch.Tensor) and _memory(leaf) not in self.given:
                self.made.setdefault(_memory(leaf), (number, self.latest[number]))
        return result

    def join(self) -> None:
        """Let the recorded stream wait for all branches."""
        for number, event in self.latest.items():
            if number > 0:
                self.recorded.wait_event(event)

    def _streams(self) -> list[torch.cuda.Stream]:
        """This thread's streams on the device, none of which is the recorded one."""
        known: dict[int, list[torch.cuda.Stream]] = _here.__dict__.setdefault("streams", {})
        device = self.recorded.device_index
        if device not in known:
            known[device] = [torch.cuda.Stream(device) for _ in range(MOST_BRANCHES)]
        return [stream for stream in known[device] if stream != self.recorded][: MOST_BRANCHES - 1]


@contextmanager
def branching(arguments: Sequence[Any]) -> Iterator[None]:
    """Calls of `branch` within are side by side on the GPU; they are joined at the end, unless an exception ends them.

    `arguments` are those of the function that is recorded: they are there from the beginning.
    """
    if getattr(_here, "active", None) is not None:
        yield  # a recorded function that calls another one
        return
    given = frozenset(_memory(a) for a in arguments if isinstance(a, torch.Tensor))
    _here.active = _Branches(torch.cuda.current_stream(), given)
    try:
        yield
        _here.active.join()
    finally:
        _here.active = None


def branch(number: int, function: Callable, *arguments: Any) -> Any:
    """`function(*arguments)`, computed in the branch of this number, from 0 to `MOST_BRANCHES` - 1.

    The function computes new tensors, or views, from its arguments, and writes to none of them. It returns a tensor, or
    a tuple or list of tensors, numbers and None. What one branch has made only other calls of `branch` may read. Where
    nothing is recorded, and within another branch, it is called as it is. Raises ValueError on other numbers, TypeError
    on containers as arguments and on other results.
    """
    if not 0 <= number < MOST_BRANCHES:
        raise ValueError(f"branches are numbered from 0 to {MOST_BRANCHES - 1}")
    if not all(isinstance(a, ARGUMENTS) for a in arguments):
        raise TypeError("branch takes tensors and numbers one by one, no containers")
    active: _Branches | None = getattr(_here, "active", None)
    if active is not None and not active.running:
        return active.run(number, function, arguments)
    result = function(*arguments)
    leaves_of(result)
    return result


def leaves_of(result: Any) -> list[Any]:
    """The tensors, numbers and None that a captured function or a branch returns. Raises TypeError on anything else."""
    leaves = list(result) if isinstance(result, tuple | list) else [result]
    if not all(a is None or isinstance(a, torch.Tensor | int | float) for a in leaves):
        raise TypeError("a captured function, and a branch, returns tensors, numbers and None")
    return leaves


def _memory(x: torch.Tensor) -> int:
    """Which memory a tensor lies in."""
    return x.untyped_storage().data_ptr()
