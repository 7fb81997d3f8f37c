"""The child's main: rebuilds graphs, imports the pass, calls, and answers with fixed-size structs.

It runs in a fork of `passbench.workers.fork_server`. It knows no seeds of inputs,
no reference outputs and no clock. Nothing that it says is believed without a look at the outputs.
"""

import gc
import os
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import fx

from passbench import compilers
from passbench.child import observe, triton_interpreter
from passbench.child.call_memory import CallMemory
from passbench.child.failures import CallFailed, explain
from passbench.child.interpreted_libdevice import lend_libdevice
from passbench.child.kernel_options import confine_options, lend_memory
from passbench.child.kernel_time import device_us
from passbench.child.outputs import (
    BadOutput,
    KeptOutputs,
    check,
    check_allocated,
    check_memory,
    check_pinned,
    check_places,
    describe_all,
    flatten,
)
from passbench.child.replays import Replays
from passbench.child.sealing import SealedCalls
from passbench.contract import ContractError, PassRule, load_rules, read_pass_dir
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
    OutputMeta,
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
from passbench.ipc.spawn import Spawn
from passbench.ipc.wire import MAX_OUTPUTS, encode_reply, read_command
from passbench.matching.rewrite import apply_pass
from storage.graph.as_fx import to_module
from storage.graph.as_json import from_json

_FLUSH_BYTES = 256 << 20  # several times the largest L2 cache
_MOST_CACHED = 512 << 20  # bytes of GPU memory that torch may keep for the next graph


class Worker:
    """Handles commands one by one; state lasts from one `Load` to the next."""

    def __init__(self, device: torch.device, shared_fd: int | None, *, confine_kernels: bool = True) -> None:
        self.device, self._memory = device, CallMemory(device, shared_fd)
        self._confine_kernels = confine_kernels
        self._replays = Replays(self._memory)
        self._rules: dict[str, list[PassRule]] = {}
        self._call: Callable | None = None
        self._rewritten: tuple[fx.GraphModule, tuple[fx.Node, ...]] | None = None
        self._called = False
        self._compiled: dict[Load, Callable] = {}  # by what it was built for: the latest, or all kept ones
        self._staged: list[tuple[torch.Tensor | int, ...]] = []
        self._staging: Stage | None = None
        self._results: list[Any] = []
        self._sealed: SealedCalls | None = None
        self._kept = KeptOutputs()
        self._allocated = 0  # bytes of GPU memory that torch had given out before the staged calls
        self._flush: torch.Tensor | None = None
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
            Go: self._go,
            Profile: self._profile,
            Collect: self._collect,
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

    def _forget(self) -> None:
        self._staged, self._results, self._staging, self._sealed = [], [], None, None

    def _forget_all(self) -> None:
        self._forget()
        self._replays.forget()
        self._memory.forget()

    def _load(self, command: Load) -> WorkerReply:
        self._forget_all()
        self._kept.forget()
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
        self._forget()
        batch = command.batch
        # Makes torch fill every fresh allocation with NaN, so that nothing correct can be found in old memory. Without
        # it nothing may differ from timed calls, "warn only" included: dynamo compiles again for each of both.
        torch.use_deterministic_algorithms(command.fill, warn_only=command.fill)
        try:
            calls = []
            for index, inputs in enumerate(self._memory.inputs(batch)):
                result = self._invoke(inputs, index, command.seed + index)
                outputs = flatten(result)
                check(outputs, inputs, command.outputs, strict=command.strict)
                if command.strict and self._rewritten is not None:
                    check_places(result, command.outputs)
                self._memory.copy_out([outputs], batch, [index])
                calls.append((outputs, inputs))
            if command.strict:
                self._check_memory(calls, command.outputs)
        finally:
            torch.use_deterministic_algorithms(False)
        return WorkerReply(Code.OK)

    def _observe(self, command: Observe) -> WorkerReply:
        torch.manual_seed(command.seed)
        inputs, end = self._memory.inputs(command.batch), command.first + command.calls
        try:
            for call in inputs[: command.first]:
                self._call(*call)
                self._memory.synchronize()
            seen = observe.observe(*self._rewritten, inputs[command.first : end])
            for call in inputs[end:]:
                self._call(*call)
                self._memory.synchronize()
        except BaseException as error:  # as in `handle`
            raise CallFailed(0) from error
        return WorkerReply(Code.OK, observed=seen.encode())

    def _stage(self, command: Stage) -> WorkerReply:
        self._forget()
        self._staging = command
        self._staged = self._memory.inputs(command.batch)
        self._sealed = SealedCalls(self._memory.shared, command.batch)
        torch.manual_seed(command.seed)
        self._allocated = self._allocated_now() if self._rewritten is not None else 0  # only passes are asked
        self._memory.synchronize()
        return WorkerReply(Code.OK)

    def _wake(self, command: Wake) -> WorkerReply:
        self._spark.zero_()
        self._memory.synchronize()
        return WorkerReply(Code.OK)

    def _go(self, command: Go) -> WorkerReply:
        self._results = results = self._results[: command.first]
        call, synchronize, seed, clock = self._call, self._memory.synchronize, command.seed, time.perf_counter_ns
        sealed = self._sealed.calls
        flush = self._flushed() if command.flush else None
        spent = 0
        gc.disable()
        try:
            for index, inputs in enumerate(self._staged[command.first : command.end], command.first):
                if flush is not None:
                    flush.zero_()
                    synchronize()
                if index in sealed:
                    self._sealed.deliver(index)
                    synchronize()
                try:
                    begin = clock()
                    if seed is not None:
                        torch.manual_seed(seed)
                    results.append(call(*inputs))
                    synchronize()
                    if index:
                        spent += clock() - begin
                except BaseException as error:  # as in `handle`
                    raise CallFailed(index) from error
                if index in sealed:
                    self._take(index)
        finally:
            gc.enable()
        return WorkerReply(Code.OK, host_us=spent / max(len(results) - max(command.first, 1), 1) / 1000)

    def _profile(self, command: Profile) -> WorkerReply:
        self._results = results = []

        def run() -> None:
            results.extend(self._call(*inputs) for inputs in self._staged)

        return WorkerReply(Code.OK, device_us=device_us(run) / len(self._staged))

    def _flushed(self) -> torch.Tensor:
        if self._flush is None:
            self._flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device=self.device)
        return self._flush

    def _take(self, index: int) -> None:
        """Copy out what a sealed call has returned, before the next call begins."""
        stage, outputs = self._staging, flatten(self._results[index])
        check(outputs, self._staged[index], stage.outputs, strict=stage.strict)
        self._sealed.take(index, outputs)
        self._memory.synchronize()

    def _collect(self, command: Collect) -> WorkerReply:
        stage, outputs = self._staging, [flatten(value) for value in self._results]
        for values, inputs in zip(outputs, self._staged, strict=True):
            check(values, inputs, stage.outputs, strict=stage.strict)
        calls = list(zip(outputs, self._staged, strict=True))
        if stage.strict:
            if self._rewritten is not None:
                for result in self._results:
                    check_places(result, stage.outputs)
                check_allocated(calls, self._allocated_now() - self._allocated)
            self._check_memory(calls, stage.outputs)
        self._sealed.check_unchanged(outputs)
        rest = [index for index in range(len(outputs)) if index not in self._sealed.calls]
        self._memory.copy_out([outputs[index] for index in rest], stage.batch, rest)
        self._forget()
        return WorkerReply(Code.OK)

    def _capture(self, command: CaptureCalls) -> WorkerReply:
        self._forget()
        return self._replays.capture(command, self._call, of_a_pass=self._rewritten is not None)

    def _check_memory(self, calls: list[tuple[list[Any], tuple]], expected: tuple[OutputMeta, ...]) -> None:
        """The outputs of a pass lie in memory as eager's do, and in no memory that another call has returned."""
        if self._rewritten is None:
            return
        for outputs, _ in calls:
            check_memory(outputs, expected, self.device)
        if self.device.type == "cuda":
            check_pinned()
        self._kept.check(calls)
        self._kept.keep_one(calls)

    def _allocated_now(self) -> int:
        return torch.cuda.memory_allocated() if self.device.type == "cuda" else 0

    def _invoke(self, inputs: tuple, index: int, seed: int) -> Any:
        torch.manual_seed(seed)  # for random operations in the graph; inputs were drawn by the parent
        try:
            value = self._call(*inputs)
            self._memory.synchronize()
        except BaseException as error:  # as in `handle`
            raise CallFailed(index) from error
        self._called = True
        return value


def _limit(spawn: Spawn) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (spawn.file_bytes, spawn.file_bytes))
    if spawn.memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_AS, (spawn.memory_bytes, spawn.memory_bytes))


def main(spawn: Spawn, commands: int, replies: int, shared_fd: int | None) -> None:
    """Serve commands until the parent closes its end."""
    _limit(spawn)
    device = torch.device(spawn.device)
    torch.set_num_threads(spawn.threads)
    torch.set_grad_enabled(False)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.cuda.set_per_process_memory_fraction(spawn.device_memory_share)
        torch.cuda.synchronize()
    else:
        triton_interpreter.untimed_autotuning()
        if "TRITON_INTERPRET" in os.environ:
            triton_interpreter.spare_idle_work()
            triton_interpreter.round_bfloat16_to_nearest()
            lend_libdevice()
            if spawn.confine_kernels:
                triton_interpreter.confine_kernels()
    gc.freeze()  # collections between calls need not look at torch itself
    worker = Worker(device, shared_fd, confine_kernels=spawn.confine_kernels)
    for nonce, command in _commands(commands, spin=device.type == "cuda"):
        _write(replies, encode_reply(nonce, worker.handle(command)))


def _commands(fd: int, *, spin: bool) -> Iterator[tuple[int, Command]]:
    """The commands as they come. `spin`: what follows the staging of a timed call is waited for without sleeping."""
    staged = False
    while (received := read_command(fd, spin=spin and staged)) is not None:
        staged = isinstance(received[1], Stage | ArmReplay | Wake)
        yield received


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
