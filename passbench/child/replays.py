"""The commands of the device clock in a worker: capture the calls of a batch, arm, replay, collect."""

from collections.abc import Callable
from typing import Any

from passbench.child.call_memory import CallMemory
from passbench.child.captured_calls import CapturedCalls, EmptyReplay
from passbench.child.failures import explain
from passbench.child.outputs import KeptOutputs, check, check_memory, check_plain, flatten
from passbench.child.sealing import SealedCalls
from passbench.ipc.messages import ArmReplay, CaptureCalls, Code, CollectReplayed, ReplayCalls, WorkerReply


class Replays:
    """Captured calls of one callable at a time.

    There is a CUDA graph from the beginning. A process that had made none took 2 to 3 us less for a call than one that
    had (benchmarks/passbench/h200_profiler): fresh workers and those that have timed a variant were not alike.
    """

    def __init__(self, memory: CallMemory) -> None:
        self._memory = memory
        self._captured: CapturedCalls | None = None
        self._capturing: CaptureCalls | None = None
        self._strict_memory = False
        self._outputs: list[list[Any]] | None = None  # of the captured calls, once they are checked
        self._empty = EmptyReplay(memory.device) if memory.device.type == "cuda" else None

    def forget(self) -> None:
        """Drop what was captured."""
        self._captured = self._capturing = self._outputs = None

    def capture(self, command: CaptureCalls, call: Callable, *, of_a_pass: bool) -> WorkerReply:
        """Capture the calls of a batch in one graph. `of_a_pass`: memory of outputs is checked when they are
        collected."""
        self._captured = self._outputs = None  # first, for its memory
        self._capturing, self._strict_memory = command, command.strict and of_a_pass
        batch, rows = command.batch, self._memory.inputs(command.batch)
        sealed = SealedCalls(self._memory.shared, batch)

        def before(index: int) -> None:
            if index in sealed.calls:
                sealed.deliver(index)

        def after(index: int, result: Any) -> None:
            if index in sealed.calls:
                self._memory.copy_out([flatten(result)], batch, [index], on_device=True)

        try:
            if self._memory.device.type != "cuda":
                raise RuntimeError("a CUDA graph needs a GPU")
            self._captured = CapturedCalls(call, rows, before, after)
            self._captured.replay()  # brings the graph to the device
            self._memory.synchronize()
        except BaseException as error:  # pass code raises what it likes; the parent must hear of it
            return WorkerReply(Code.UNCAPTURABLE, text=explain(error))
        return WorkerReply(Code.OK)

    def arm(self, command: ArmReplay) -> WorkerReply:
        """Set the seed and poison the outputs; nothing is poisoned for a replay of no calls."""
        self._memory.seed(command.seed)
        if not command.empty:
            self._captured.poison()
        self._memory.synchronize()
        return WorkerReply(Code.OK)

    def replay(self, command: ReplayCalls) -> WorkerReply:
        """Replay, and wait for the device."""
        (self._empty if command.empty else self._captured).replay()
        self._memory.synchronize()
        return WorkerReply(Code.OK)

    def collect(self, command: CollectReplayed) -> WorkerReply:
        """Check the outputs of the last replay and copy them out. Raises BadOutput."""
        if self._outputs is None:
            self._outputs = self._checked_outputs()
        how, outputs = self._capturing, self._outputs
        sealed = list(how.batch.sealed)
        rest = [n for n in range(len(outputs)) if n not in how.batch.sealed]
        self._memory.copy_out([outputs[index] for index in sealed], how.batch, sealed, on_device=False)
        self._memory.copy_out([outputs[index] for index in rest], how.batch, rest)
        SealedCalls(self._memory.shared, how.batch).check_unchanged(outputs)
        return WorkerReply(Code.OK)

    def _checked_outputs(self) -> list[list[Any]]:
        """The outputs of the captured calls, checked once: between the replays of a graph no code of a pass runs, and
        they stay the same tensors. Raises BadOutput."""
        how, outputs = self._capturing, [flatten(value) for value in self._captured.results]
        calls = list(zip(outputs, self._captured.rows, strict=True))
        for values, inputs in calls:
            check(values, inputs, how.outputs, strict=how.strict)
        if self._strict_memory:
            check_plain(calls)
            for values, _ in calls:
                check_memory(values, how.outputs, self._memory.device)
            KeptOutputs().check(calls)
        return outputs
