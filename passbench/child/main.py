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
from passbench.child.captured_calls import CapturedCalls, EmptyReplay
from passbench.child.kernel_time import device_us
from passbench.child.outputs import (
    BadOutput,
    KeptOutputs,
    check,
    check_allocated,
    check_memory,
    check_pinned,
    describe_all,
    flatten,
)
from passbench.child.sealing import SealedCalls
from passbench.contract import ContractError, PassRule, load_rules, read_pass_dir
from passbench.ipc import shared_memory
from passbench.ipc.messages import (
    MAX_OUTPUTS,
    ArmReplay,
    Batch,
    Block,
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
    Warm,
    WorkerReply,
    encode_reply,
    read_command,
)
from passbench.ipc.spawn import Spawn
from passbench.matching.rewrite import apply_pass
from storage.graph.as_fx import to_module
from storage.graph.as_json import from_json

_FLUSH_BYTES = 256 << 20  # several times the largest L2 cache


class CallFailed(Exception):
    """A call of the code under test raised; `index` says which."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


class Worker:
    """Handles commands one by one; state lasts from one `Load` to the next."""

    def __init__(self, device: torch.device, shared_fd: int | None) -> None:
        self.device, self._shared_fd = device, shared_fd
        self._shared: shared_memory.SharedMemory | None = None
        self._tensors: shared_memory.TensorCache = {}
        self._rules: dict[str, list[PassRule]] = {}
        self._call: Callable | None = None
        self._rewritten: tuple[fx.GraphModule, tuple[fx.Node, ...]] | None = None
        self._called = False
        self._staged: list[tuple[torch.Tensor | int, ...]] = []
        self._staging: Stage | None = None
        self._results: list[Any] = []
        self._sealed: SealedCalls | None = None
        self._kept = KeptOutputs()
        self._allocated = 0  # bytes of GPU memory that torch had given out before the staged calls
        self._flush: torch.Tensor | None = None
        self._captured: CapturedCalls | None = None
        self._capturing: CaptureCalls | None = None
        self._empty: EmptyReplay | None = None
        self._handlers: dict[type, Callable[[Any], WorkerReply]] = {
            Open: self._open,
            Shut: self._shut,
            Load: self._load,
            Describe: self._describe,
            RunCalls: self._run,
            Observe: self._observe,
            Stage: self._stage,
            Go: self._go,
            Profile: self._profile,
            Collect: self._collect,
            CaptureCalls: self._capture,
            ArmReplay: self._arm,
            ReplayCalls: self._replay,
            CollectReplayed: self._collect_replayed,
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
            return WorkerReply(code, failed.index, text=_explain(cause))
        except BadOutput as error:
            return WorkerReply(Code.BAD_OUTPUT, text=str(error))
        except (ContractError, compilers.CompileError) as error:
            return WorkerReply(Code.COMPILE_ERROR, text=str(error))
        except BaseException as error:  # pass code raises what it likes, SystemExit too; the parent must hear of it
            return WorkerReply(Code.RUNTIME_ERROR, text=_explain(error))

    def _open(self, command: Open) -> WorkerReply:
        self._forget_all()
        self._shared = shared_memory.open_handle(command.handle, self._shared_fd, self.device)
        return WorkerReply(Code.OK)

    def _shut(self, command: Shut) -> WorkerReply:
        self._forget_all()
        self._synchronize()
        if self._shared is not None:
            self._shared.close()
            self._shared = None
        return WorkerReply(Code.OK)

    def _warm(self, command: Warm) -> WorkerReply:
        from passbench.child import warm_up  # a kernel of Triton's is made on import

        warm_up.run(self.device)
        self._synchronize()
        return WorkerReply(Code.OK)

    def _ping(self, command: Ping) -> WorkerReply:
        self._synchronize()  # what has failed on the device shows here
        return WorkerReply(Code.OK)

    def _forget(self) -> None:
        self._staged, self._results, self._staging, self._sealed = [], [], None, None

    def _forget_all(self) -> None:
        self._forget()
        self._captured = self._capturing = None
        self._tensors.clear()

    def _load(self, command: Load) -> WorkerReply:
        self._forget_all()
        self._kept.forget()
        self._called, self._rewritten = False, None
        module = to_module(from_json(command.graph), self.device)
        if command.compiler != "pass":
            if command.compiler not in ("eager", "double"):  # only those who compile need dynamo, which takes seconds
                torch._dynamo.reset()
            self._call = compilers.build(command.compiler, module, self.device)
            return WorkerReply(Code.OK)
        applied = apply_pass(module.graph, self._pass_rules(command.pass_dir))
        if applied.total == 0:
            return WorkerReply(Code.NO_MATCH, text=applied.diagnosis())
        module.recompile()
        self._call, self._rewritten = module.forward, (module, applied.inserted)
        return WorkerReply(Code.OK, count=applied.total)

    def _pass_rules(self, directory: str) -> list[PassRule]:
        if directory not in self._rules:
            names = read_pass_dir(directory).names
            self._rules[directory] = load_rules(Path(directory), names)
        return self._rules[directory]

    def _describe(self, command: Describe) -> WorkerReply:
        (inputs,) = self._inputs(command.batch)
        outputs = flatten(self._invoke(inputs, 0, command.seed))
        if len(outputs) > MAX_OUTPUTS:
            raise BadOutput(f"{len(outputs)} outputs; PassBench handles up to {MAX_OUTPUTS}")
        return WorkerReply(Code.OK, outputs=describe_all(outputs, inputs, self.device))

    def _run(self, command: RunCalls) -> WorkerReply:
        self._forget()
        batch = command.batch
        # Makes torch fill every fresh allocation with NaN, so that nothing correct can be found in old memory.
        torch.use_deterministic_algorithms(command.fill, warn_only=True)
        try:
            calls = []
            for index, inputs in enumerate(self._inputs(batch)):
                outputs = flatten(self._invoke(inputs, index, command.seed + index))
                check(outputs, inputs, command.outputs, strict=command.strict)
                self._copy_out([outputs], batch, [index])
                calls.append((outputs, inputs))
            if command.strict:
                self._check_memory(calls, command.outputs)
        finally:
            torch.use_deterministic_algorithms(False)
        return WorkerReply(Code.OK)

    def _observe(self, command: Observe) -> WorkerReply:
        torch.manual_seed(command.seed)
        inputs, end = self._inputs(command.batch), command.first + command.calls
        try:
            for call in inputs[: command.first]:
                self._call(*call)
                self._synchronize()
            seen = observe.observe(*self._rewritten, inputs[command.first : end])
            for call in inputs[end:]:
                self._call(*call)
                self._synchronize()
        except BaseException as error:  # as in `handle`
            raise CallFailed(0) from error
        return WorkerReply(Code.OK, observed=seen.encode())

    def _stage(self, command: Stage) -> WorkerReply:
        self._forget()
        self._staging = command
        self._staged = self._inputs(command.batch)
        self._sealed = SealedCalls(self._shared, command.batch)
        torch.manual_seed(command.seed)
        self._allocated = self._allocated_now()
        self._synchronize()
        return WorkerReply(Code.OK)

    def _go(self, command: Go) -> WorkerReply:
        self._results = results = []
        call, synchronize, seed, clock = self._call, self._synchronize, command.seed, time.perf_counter_ns
        sealed = self._sealed.calls
        flush = self._flushed() if command.flush else None
        spent = 0
        gc.disable()
        try:
            for index, inputs in enumerate(self._staged):
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
        return WorkerReply(Code.OK, host_us=spent / max(len(results) - 1, 1) / 1000)

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
        self._synchronize()

    def _collect(self, command: Collect) -> WorkerReply:
        stage, outputs = self._staging, [flatten(value) for value in self._results]
        for values, inputs in zip(outputs, self._staged, strict=True):
            check(values, inputs, stage.outputs, strict=stage.strict)
        calls = list(zip(outputs, self._staged, strict=True))
        if stage.strict:
            if self._rewritten is not None:
                check_allocated(calls, self._allocated_now() - self._allocated)
            self._check_memory(calls, stage.outputs)
        self._sealed.check_unchanged(outputs)
        rest = [index for index in range(len(outputs)) if index not in self._sealed.calls]
        self._copy_out([outputs[index] for index in rest], stage.batch, rest)
        self._forget()
        return WorkerReply(Code.OK)

    def _capture(self, command: CaptureCalls) -> WorkerReply:
        self._forget()
        self._captured = None  # first, for its memory
        self._capturing = command
        batch, rows = command.batch, self._inputs(command.batch)
        sealed = SealedCalls(self._shared, batch)

        def before(index: int) -> None:
            if index in sealed.calls:
                sealed.deliver(index)

        def after(index: int, result: Any) -> None:
            if index in sealed.calls:
                self._copy_out([flatten(result)], batch, [index], on_device=True)

        try:
            if self.device.type != "cuda":
                raise RuntimeError("a CUDA graph needs a GPU")
            self._captured = CapturedCalls(self._call, rows, before, after)
            self._synchronize()
        except BaseException as error:  # as in `handle`
            return WorkerReply(Code.UNCAPTURABLE, text=_explain(error))
        return WorkerReply(Code.OK)

    def _arm(self, command: ArmReplay) -> WorkerReply:
        torch.manual_seed(command.seed)
        self._captured.poison(x for value in self._captured.results for x in flatten(value))
        if self._empty is None:
            self._empty = EmptyReplay(self.device)
        self._synchronize()
        return WorkerReply(Code.OK)

    def _replay(self, command: ReplayCalls) -> WorkerReply:
        (self._empty if command.empty else self._captured).replay()
        self._synchronize()
        return WorkerReply(Code.OK)

    def _collect_replayed(self, command: CollectReplayed) -> WorkerReply:
        how, outputs = self._capturing, [flatten(value) for value in self._captured.results]
        calls = list(zip(outputs, self._captured.rows, strict=True))
        for values, inputs in calls:
            check(values, inputs, how.outputs, strict=how.strict)
        if how.strict and self._rewritten is not None:
            for values, _ in calls:
                check_memory(values, how.outputs, self.device)
            KeptOutputs().check(calls)
        sealed, rest = list(how.batch.sealed), [n for n in range(len(outputs)) if n not in how.batch.sealed]
        self._copy_out([outputs[index] for index in sealed], how.batch, sealed, on_device=False)
        self._copy_out([outputs[index] for index in rest], how.batch, rest)
        SealedCalls(self._shared, how.batch).check_unchanged(outputs)
        return WorkerReply(Code.OK)

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
            self._synchronize()
        except BaseException as error:  # as in `handle`
            raise CallFailed(index) from error
        self._called = True
        return value

    def _inputs(self, batch: Batch) -> list[tuple[torch.Tensor | int, ...]]:
        columns = [
            shared_memory.input_tensors(self._shared, x, batch.order, self._tensors)
            if isinstance(x, Block)
            else [x] * batch.calls
            for x in batch.inputs
        ]
        return list(zip(*columns, strict=True)) if columns else [()] * batch.calls

    def _copy_out(
        self, outputs: list[list[Any]], batch: Batch, calls: list[int], *, on_device: bool | None = None
    ) -> None:
        """Copy the outputs of these calls to their places. `on_device`: only those that lie on the device, without
        waiting for it, as a CUDA graph can; False: only the others."""
        for number, block in enumerate(batch.outputs):
            if block is None or not calls:
                continue
            places = shared_memory.output_views(self._shared, block)
            values = [torch.as_tensor(leaves[number]) for leaves in outputs]
            pairs = [(places[call], value) for call, value in zip(calls, values, strict=True)
                     if on_device is None or value.is_cuda is on_device]  # fmt: skip
            if pairs:
                torch._foreach_copy_(*map(list, zip(*pairs, strict=True)))
        if not on_device:
            self._synchronize()

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def _explain(error: BaseException | None) -> str:
    chain: list[str] = []
    while error is not None and len(chain) < 4:
        chain.append(f"{type(error).__name__}: {error}".strip())
        error = error.__cause__
    return "\ncaused by ".join(chain)


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
            triton_interpreter.round_bfloat16_to_nearest()
            if spawn.confine_kernels:
                triton_interpreter.confine_kernels()
    worker = Worker(device, shared_fd)
    gc.freeze()  # collections between calls need not look at torch itself
    for nonce, command in _commands(commands):
        _write(replies, encode_reply(nonce, worker.handle(command)))


def _commands(fd: int) -> Iterator[tuple[int, Command]]:
    staged = False
    while (received := read_command(fd, spin=staged)) is not None:
        staged = isinstance(received[1], Stage | ArmReplay)
        yield received


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
