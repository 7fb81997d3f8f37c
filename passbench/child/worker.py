"""A worker: rebuilds graphs, imports the pass, calls, and answers every command.

It knows no seeds of inputs, no reference outputs and no clock. Nothing that it says is believed without a look at the
outputs.
"""

import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import fx

from passbench import compilers
from passbench.child.call_memory import CallMemory
from passbench.child.failures import CallFailed, explain
from passbench.child.filled_memory import filled_memory
from passbench.child.kernel_options import confine_options, lend_memory
from passbench.child.outputs import (
    BadOutput,
    KeptOutputs,
    check,
    check_calls,
    check_places,
    describe_all,
    flatten,
)
from passbench.child.replays import Replays
from passbench.child.staged_calls import StagedCalls
from passbench.contract import ContractError, PassRule, check_names_free, load_rules, read_pass_dir
from passbench.ipc.messages import (
    ArmReplay,
    CaptureCalls,
    Code,
    Collect,
    CollectReplayed,
    Command,
    Describe,
    Go,
    Load,
    Observe,
    Open,
    Ping,
    Profile,
    ReplayCalls,
    RunCalls,
    Shut,
    Stage,
    Wake,
    Warm,
    WorkerReply,
)
from passbench.ipc.wire import MAX_OUTPUTS
from passbench.matching.rewrite import apply_pass
from storage.graph.as_fx import to_module
from storage.graph.as_json import from_json

_MOST_CACHED = 512 << 20  # bytes of GPU memory that torch may keep for the next graph


class Worker:
    """Handles commands one by one; state lasts from one `Load` to the next."""

    def __init__(self, device: torch.device, shared_fd: int | None, *, confine_kernels: bool = True) -> None:
        self.device, self._memory = device, CallMemory(device, shared_fd)
        self._confine_kernels = confine_kernels
        self._replays = Replays(self._memory)
        self._rules: dict[str, list[PassRule]] = {}
        self._pass_dir: str | None = None  # of the latest load
        self._call: Callable | None = None
        self._rewritten: tuple[fx.GraphModule, tuple[fx.Node, ...]] | None = None
        self._called = False
        self._compiled: dict[Load, Callable] = {}  # by what it was built for: the latest, or all kept ones
        self._kept = KeptOutputs()
        self._staged = StagedCalls(self._memory, self._kept)
        self._spark = torch.zeros(1, device=device)
        self._handlers: dict[type, Callable[[Any], WorkerReply]] = {
            Open: self._open,
            Shut: self._shut,
            Load: self._load,
            Describe: self._describe,
            RunCalls: self._run,
            Observe: self._observe,
            Stage: self._stage,
            Wake: self._wake,
            Go: lambda command: self._staged.go(command, self._call),
            Profile: lambda command: self._staged.profile(command, self._call),
            Collect: self._staged.collect,
            CaptureCalls: self._capture,
            ArmReplay: self._replays.arm,
            ReplayCalls: self._replays.replay,
            CollectReplayed: self._replays.collect,
            Warm: self._warm,
            Ping: self._ping,
        }

    def handle(self, command: Command) -> WorkerReply:
        """Do what a command says. Whatever the code under test raises becomes a reply; our own faults do too."""
        try:
            return self._handlers[type(command)](command)
        except CallFailed as failed:
            cause = failed.__cause__
            compiling = not self._called and compilers.is_compile_failure(cause)
            code = Code.COMPILE_ERROR if compiling else Code.RUNTIME_ERROR
            return WorkerReply(code, failed.index, text=explain(cause))
        except BadOutput as error:
            return WorkerReply(Code.BAD_OUTPUT, text=str(error))
        except (ContractError, compilers.CompileError) as error:
            return WorkerReply(Code.COMPILE_ERROR, text=str(error))
        except BaseException as error:  # pass code raises what it likes, SystemExit too; the parent must hear of it
            return WorkerReply(Code.RUNTIME_ERROR, text=explain(error))

    def _open(self, command: Open) -> WorkerReply:
        self._forget_all()
        self._memory.open(command.handle)
        return WorkerReply(Code.OK)

    def _shut(self, command: Shut) -> WorkerReply:
        self._forget_all()
        self._memory.close()
        return WorkerReply(Code.OK)

    def _warm(self, command: Warm) -> WorkerReply:
        from passbench.child import warm_up  # a kernel of Triton's is made on import

        warm_up.run(self.device)
        self._memory.synchronize()
        return WorkerReply(Code.OK)

    def _ping(self, command: Ping) -> WorkerReply:
        self._memory.synchronize()  # what has failed on the device shows here
        return WorkerReply(Code.OK)

    def _forget_all(self) -> None:
        self._staged.forget()
        self._replays.forget()
        self._memory.forget()

    def _load(self, command: Load) -> WorkerReply:
        self._forget_all()
        self._kept.forget()
        if command.pass_dir != self._pass_dir:
            self._pass_dir = command.pass_dir
            _forget_recordings()
        if self.device.type == "cuda" and torch.cuda.memory_reserved() > _MOST_CACHED:
            torch.cuda.empty_cache()  # of the graph before; processes that wait for their turn share the GPU
        compiled = self._compiled.get(command)
        if compiled is not None and compiled is self._call:
            return WorkerReply(Code.OK)
        self._called, self._rewritten = False, None
        if compiled is not None:
            self._call = compiled
            return WorkerReply(Code.OK)
        if not command.keep:
            self._compiled.clear()
        module = to_module(from_json(command.graph), self.device)
        if command.compiler != "pass":
            compiles = command.compiler not in ("eager", "double")
            if compiles and not command.keep:  # only they need dynamo, which takes seconds
                torch._dynamo.reset()
            self._call = compilers.build(command.compiler, module, self.device)
            if compiles:
                self._compiled[command] = self._call
            return WorkerReply(Code.OK)
        applied = apply_pass(module.graph, self._pass_rules(command.pass_dir))
        if applied.total == 0:
            return WorkerReply(Code.NO_MATCH, text=applied.diagnosis())
        module.recompile()
        self._call, self._rewritten = module.forward, (module, applied.inserted)
        return WorkerReply(Code.OK, count=applied.total)

    def _pass_rules(self, directory: str) -> list[PassRule]:
        if directory not in self._rules:
            if self._confine_kernels:
                confine_options()
            if self.device.type == "cuda":
                lend_memory()
            check_names_free(Path(directory))
            names = read_pass_dir(directory).names
            self._rules[directory] = load_rules(Path(directory), names)
        return self._rules[directory]

    def _describe(self, command: Describe) -> WorkerReply:
        (inputs,) = self._memory.inputs(command.batch)
        outputs = describe_all(self._invoke(inputs, 0, command.seed), inputs, self.device)
        if len(outputs) > MAX_OUTPUTS:
            raise BadOutput(f"{len(outputs)} outputs; PassBench handles up to {MAX_OUTPUTS}")
        return WorkerReply(Code.OK, outputs=outputs)

    def _run(self, command: RunCalls) -> WorkerReply:
        self._staged.forget()
        batch, strict = command.batch, command.strict and self._rewritten is not None
        calls = []
        for index, inputs in enumerate(self._memory.inputs(batch)):
            with filled_memory() if command.fill else nullcontext():
                result = self._invoke(inputs, index, command.seed + index)
            outputs = flatten(result)
            check(outputs, inputs, command.outputs, strict=command.strict)
            if strict:
                check_places(result, command.outputs)
            self._memory.copy_out([outputs], batch, [index])
            calls.append((outputs, inputs))
        if strict:
            check_calls(calls, command.outputs, self.device, self._kept)
        return WorkerReply(Code.OK)

    def _observe(self, command: Observe) -> WorkerReply:
        """As `Go`, in three parts: each calls the pass with as many frames of Python below it as `Go` does."""
        self._staged.go(replace(command.go, end=command.first), self._call, goes_on=True)
        seen = self._staged.observe(command, *self._rewritten)
        self._staged.go(replace(command.go, first=command.first + command.calls), self._call)
        self._staged.forget()
        return WorkerReply(Code.OK, observed=seen.encode())

    def _stage(self, command: Stage) -> WorkerReply:
        return self._staged.stage(command, of_a_pass=self._rewritten is not None)

    def _wake(self, command: Wake) -> WorkerReply:
        self._spark.zero_()
        self._memory.synchronize()
        return WorkerReply(Code.OK)

    def _capture(self, command: CaptureCalls) -> WorkerReply:
        self._staged.forget()
        return self._replays.capture(command, self._call, of_a_pass=self._rewritten is not None)

    def _invoke(self, inputs: tuple, index: int, seed: int) -> Any:
        self._memory.seed(seed)  # for random operations in the graph; inputs were drawn by the parent
        try:
            value = self._call(*inputs)
            self._memory.synchronize()
        except BaseException as error:  # as in `handle`
            raise CallFailed(index) from error
        self._called = True
        return value


def _forget_recordings() -> None:
    """Give up what the functions of other passes have captured: a pass by itself has no such graphs beside its own."""
    if (capture := sys.modules.get("passbench.launch.capture")) is not None:
        capture.captured.forget()
