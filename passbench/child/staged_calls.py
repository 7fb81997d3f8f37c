"""The calls of one exchange: staged on their inputs, made one after another, and collected."""

import time
from collections.abc import Callable, Collection, Generator
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any

import torch
from torch import fx

from passbench.child.call_memory import CallMemory
from passbench.child.failures import CallFailed
from passbench.child.filled_memory import fill_free_memory, filled_memory
from passbench.child.kernel_time import device_us
from passbench.child.observing.observe import observe
from passbench.child.outputs import (
    KeptOutputs,
    MemoryBefore,
    check,
    check_allocated,
    check_calls,
    check_filled,
    check_places,
    flatten,
)
from passbench.child.sealing import SealedCalls
from passbench.ipc.messages import Code, Collect, Go, Observe, Profile, Stage, WorkerReply
from passbench.ipc.observation import Observation
from passbench.launch.garbage_collection import without_collection

_FLUSH_BYTES = 256 << 20  # several times the largest L2 cache


class StagedCalls:
    """Calls of one callable, an exchange at a time. `kept` holds outputs of a pass, those of draws among them."""

    def __init__(self, memory: CallMemory, kept: KeptOutputs) -> None:
        self._memory, self._kept = memory, kept
        self._flush: torch.Tensor | None = None
        self.forget()

    def forget(self) -> None:
        """Drop inputs and results."""
        self._rows: list[tuple[torch.Tensor | int, ...]] = []
        self._results: list[Any] = []
        self._staging: Stage | None = None
        self._sealed: SealedCalls | None = None
        self._of_a_pass = False
        self._before: MemoryBefore | None = None
        self._allocated = 0  # bytes of GPU memory that torch had given out before the calls
        self._held: list[range] = []  # where that memory is, if all other was filled
        self._rehearsed = 0  # calls that were made before the others

    def stage(self, command: Stage, *, of_a_pass: bool) -> WorkerReply:
        """Make a batch of calls ready. `of_a_pass`: memory of outputs is checked when they are collected."""
        self.forget()
        self._staging, self._of_a_pass = command, of_a_pass
        self._rows = self._memory.inputs(command.batch)
        self._sealed = SealedCalls(self._memory.shared, command.batch)
        self._memory.seed(command.seed)
        self._note_memory()
        self._memory.synchronize()
        return WorkerReply(Code.OK)

    def go(self, command: Go, call: Callable, *, goes_on: bool = False) -> WorkerReply:
        """Make the calls, or those that the command names. `goes_on`: what is made behind them is no other exchange's,
        as that behind a rehearsed call is. Raises CallFailed, and BadOutput for a sealed call."""
        self._results = results = self._results[: command.first]
        synchronize, seed, clock = self._memory.synchronize, command.seed, time.perf_counter_ns
        sealed = self._sealed.calls
        flush, spent = command.flush, 0
        with without_collection(), self._filling():
            for index, inputs in enumerate(self._rows[command.first : command.end], command.first):
                if flush or index in sealed:
                    self._make_ready(index, flush)
                try:
                    begin = clock()
                    if seed is not None:
                        torch.manual_seed(seed)
                    results.append(call(*inputs))
                    synchronize()
                    if index > command.first:
                        spent += clock() - begin
                except BaseException as error:  # as in `handle`
                    raise CallFailed(index) from error
                if index in sealed:
                    self._take(index)
        if command.end is not None and not goes_on:  # what these calls have allocated is not the others'
            self._rehearsed = command.end
            self._note_memory()
        return WorkerReply(Code.OK, host_us=spent / max(len(results) - command.first - 1, 1) / 1000)

    def profile(self, command: Profile, call: Callable) -> WorkerReply:
        """Make the calls, and say how long the device is busy with them."""
        self._results = results = []

        def run() -> None:
            results.extend(call(*inputs) for inputs in self._rows)

        return WorkerReply(Code.OK, device_us=device_us(run) / len(self._rows))

    def observe(self, command: Observe, module: fx.GraphModule, replacements: Collection[fx.Node]) -> Observation:
        """Make the calls that a command wants observed as `go` makes others, and say what ran inside `replacements`.
        Raises CallFailed."""
        results = self._results
        try:
            with closing(self._in_turn(command)) as calls:
                return observe(module, replacements, calls, results)
        except BaseException as error:  # as in `handle`
            raise CallFailed(len(results)) from error

    def _in_turn(self, command: Observe) -> Generator[tuple[torch.Tensor | int, ...], None, None]:
        """The inputs of the observed calls. Before and after each is done what `go` does."""
        for index in range(command.first, command.first + command.calls):
            self._make_ready(index, command.go.flush)
            if command.go.seed is not None:
                torch.manual_seed(command.go.seed)
            with self._filling():
                yield self._rows[index]
            self._memory.synchronize()

    def _filling(self) -> AbstractContextManager:
        """A context in which calls find NaN in fresh memory. On a GPU that memory is filled beforehand."""
        return filled_memory() if self._staging.fill and self._memory.device.type == "cpu" else nullcontext()

    def _make_ready(self, index: int, flush: bool) -> None:
        """What is done before a call: empty the L2 cache, and deliver the inputs of a sealed call."""
        if flush:
            if self._flush is None:
                self._flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device=self._memory.device)
            self._flush.zero_()
            self._memory.synchronize()
        if index in self._sealed.calls:
            self._sealed.deliver(index)
            self._memory.synchronize()

    def _take(self, index: int) -> None:
        """Copy out what a sealed call has returned, before the next call begins."""
        stage, outputs = self._staging, flatten(self._results[index])
        check(outputs, self._rows[index], stage.outputs, strict=stage.strict)
        self._sealed.take(index, outputs)
        self._memory.synchronize()

    def collect(self, command: Collect) -> WorkerReply:
        """Check what the calls have returned and copy it out. Raises BadOutput."""
        stage, outputs = self._staging, [flatten(value) for value in self._results]
        for values, inputs in zip(outputs, self._rows, strict=True):
            check(values, inputs, stage.outputs, strict=stage.strict)
        calls = list(zip(outputs, self._rows, strict=True))
        if stage.strict and self._of_a_pass:
            for result in self._results:
                check_places(result, stage.outputs)
            grown = self._allocated_now() - self._allocated  # the next check lets go of outputs that it has held
            check_calls(calls, stage.outputs, self._memory.device, self._kept)
            self._before.check(calls[self._rehearsed :])
            check_allocated(calls[self._rehearsed :], grown)
            check_filled(calls[self._rehearsed :], self._held)
        self._sealed.check_unchanged(outputs)
        rest = [index for index in range(len(outputs)) if index not in self._sealed.calls]
        self._memory.copy_out([outputs[index] for index in rest], stage.batch, rest)
        self.forget()
        return WorkerReply(Code.OK)

    def _note_memory(self) -> None:
        """Note which memory is there before the next calls, for only passes are asked; fill what they will be given."""
        if self._staging.fill and self._memory.device.type == "cuda":
            self._memory.synchronize()
            self._held = fill_free_memory()
        if self._of_a_pass:
            self._before, self._allocated = MemoryBefore(), self._allocated_now()

    def _allocated_now(self) -> int:
        """As `torch.cuda.memory_allocated`, which sorts a hundred other numbers."""
        if self._memory.device.type != "cuda":
            return 0
        return torch.cuda.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["current"]
