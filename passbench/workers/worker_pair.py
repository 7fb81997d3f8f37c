"""Eager's worker and the candidate's for one variant: both get the same fresh inputs, and answer commands."""

import random
from dataclasses import replace

import torch

from passbench.inputs import batch_layout
from passbench.inputs.batch_layout import BatchLayout
from passbench.inputs.compared import compared_numbers
from passbench.inputs.distribution import Distribution
from passbench.inputs.draw import InputError
from passbench.ipc.messages import (
    ArmReplay,
    Block,
    Code,
    Collect,
    CollectReplayed,
    Command,
    Describe,
    Go,
    Load,
    Observe,
    OutputMeta,
    ReplayCalls,
    RunCalls,
    Stage,
    Wake,
    WorkerReply,
)
from passbench.layers import Layers
from passbench.phases import Phases
from passbench.result import EAGER_FAILED, VariantFailure
from passbench.settings import Settings
from passbench.workers.l2_cache import L2Cache
from passbench.workers.worker_handle import WorkerHandle
from passbench.workers.worker_process import WorkerDied, WorkerTimeout
from storage.records import Variant

SEALED = 4
"""Calls of an exchange that are sealed; each costs it a copy of its inputs and one of its outputs."""

_FEWEST_REHEARSED = 3
"""Calls of an exchange, at least, of which the first is not timed."""

_BESIDE_TORCH = 3 << 30
"""GPU memory that a worker may take past torch: CUDA's context, kernels, their stacks, a profiler's buffers."""

_WAITED_FOR = (Stage, Wake, Go, Collect, ArmReplay, ReplayCalls, CollectReplayed)
"""Commands of timed exchanges: on a GPU the reply is waited for without sleeping. To wake up takes up to 0.2 ms, a pair
of exchanges has some ten commands, and the core that waits is the parent's alone."""

_MEASURED = (Load, RunCalls, Observe)
"""Commands during which a candidate's GPU memory is watched; nobody else allocates meanwhile."""

_STATUS = {
    Code.NO_MATCH: "no_match",
    Code.COMPILE_ERROR: "compile_error",
    Code.RUNTIME_ERROR: "runtime_error",
    Code.BAD_OUTPUT: "runtime_error",
    Code.UNCAPTURABLE: "runtime_error",  # where nothing was to be captured
}


class WorkerPair:
    """The two workers of one variant, their inputs, and the exchanges with them.

    Inputs are drawn into `drawn`, memory that no child sees, and copied from there to each worker. `outputs` describes
    eager's outputs; it is empty until `describe`. `written` are the numbers of the inputs that eager writes to, as far
    as calls have shown. `draws` counts the batches that were drawn. `fills`: calls of exchanges find NaN in fresh
    memory. `phases`: where the time of the variant went.
    """

    def __init__(
        self,
        variant: Variant,
        eager: WorkerHandle,
        candidate: WorkerHandle,
        settings: Settings,
        seed: int,
        layers: Layers,
    ) -> None:
        self.variant, self.eager, self.candidate = variant, eager, candidate
        self.settings, self.seed, self.layers = settings, seed, layers
        self.device = eager.device
        self.rng = random.Random(seed)
        self.drawn = torch.empty(0, dtype=torch.uint8, device=self.device)
        self.draws = 0
        self.fills = False
        self.outputs: tuple[OutputMeta, ...] = ()
        self.written: frozenset[int] = frozenset()
        self.phases = Phases()
        self._compared = compared_numbers(variant.graph, variant.inputs)
        self._cache = L2Cache(self.device)
        self._loads: dict[WorkerHandle, Load] = {}

    def load(self, worker: WorkerHandle, command: Load) -> WorkerReply:
        """Have a worker build its callable. Raises VariantFailure."""
        self._loads[worker] = command
        return self.ask(worker, command, self.settings.load_timeout)

    def restart(self, worker: WorkerHandle) -> None:
        """Replace a worker's process by a fresh one that has loaded the same and called it once."""
        worker.stop()
        self.ask(worker, self._loads[worker], self.settings.load_timeout)
        self.call_once(worker)

    def call_once(self, worker: WorkerHandle) -> None:
        """Have a worker call what it has loaded on inputs of its own. Raises VariantFailure."""
        layout = self.draw(1, self.outputs, Distribution.NORMAL)
        self.hand_over(worker, layout)
        run = RunCalls(layout.batch, self.outputs, self.rng.getrandbits(32), False, self.layers.has("output_contract"))
        self.ask(worker, run, self.settings.first_call_timeout)

    def describe(self) -> None:
        """Learn `outputs` from a call of eager's worker, which has loaded the graph. Raises VariantFailure if it fails,
        or if one call does not fit into the memory that the settings allow."""
        self._check_size(())
        layout = self.draw(1, (), Distribution.NORMAL)
        self.hand_over(self.eager, layout)
        outputs = self.ask(self.eager, Describe(layout.batch, 0), self.settings.first_call_timeout).outputs
        self._check_size(outputs)
        self.outputs = outputs

    def _check_size(self, outputs: tuple[OutputMeta, ...]) -> None:
        needed = batch_layout.call_bytes(self.variant.inputs, outputs)
        if needed > self.settings.shared_bytes:
            gib, limit = needed / 2**30, self.settings.shared_bytes / 2**30
            reason = f"{EAGER_FAILED}: one call takes {gib:.2f} GiB; Settings.shared_bytes allows {limit:.2f}"
            raise VariantFailure("runtime_error", reason, eager=True)

    def most_calls(self, most: int | None = None) -> int:
        """How many calls fit into one exchange: at most `most`, which is `Settings.batch` unless given."""
        limit = min(self.settings.shared_bytes, self.settings.batch_bytes)
        call_bytes = batch_layout.call_bytes(self.variant.inputs, self.outputs)
        return max(1, min(most or self.settings.batch, limit // max(1, call_bytes)))

    def about(self, size: int) -> int:
        """A number of calls that nobody can foresee: at most `size`, at least three quarters of it, and at least 2."""
        return max(2, size - self.rng.randrange(size // 4 + 1))

    def fewest_timed(self, size: int) -> int:
        """How many calls are timed at least of an exchange of `about(size)` calls."""
        fewest = max(2, size - size // 4)
        return fewest - self._rehearses(fewest)

    def _rehearses(self, calls: int) -> bool:
        """Whether the first of so many calls is made before the others. Where eager writes to an input, what that call
        has written would be gone when outputs are collected."""
        return calls >= _FEWEST_REHEARSED and not self.written

    def draw(
        self,
        calls: int,
        outputs: tuple[OutputMeta, ...],
        how: Distribution,
        *,
        sealed: int = 0,
        like_sealed: int = 0,
        rehearsed: bool = False,
    ) -> BatchLayout:
        """Lay out a batch of calls and draw fresh inputs for it into `drawn`. `hand_over` gives them to a worker.

        So many calls are `sealed`, or all if there are fewer. `like_sealed`: none is, and inputs lie as if so many
        were. `rehearsed`: the first of the calls is made by `stage` and not sealed, unless there are too few, or eager
        writes to an input. Raises VariantFailure if the record of an input says nothing that values could be drawn
        from.
        """
        rng = self.rng if self.layers.has("fresh_inputs") else random.Random(0)
        rehearsed = rehearsed and self._rehearses(calls)
        most = calls - rehearsed
        sealed, twice = min(sealed, most), min(sealed or like_sealed, most)
        if not self.layers.has("sealed_calls"):
            sealed = twice = 0
        needed = (calls + twice) * batch_layout.call_bytes(self.variant.inputs, outputs)
        if calls == 1 or needed > self.settings.batch_bytes:
            twice = 0
        with self.phases("lay out"):
            layout = batch_layout.lay_out(
                self.variant.inputs, outputs, calls, rng, sealed=sealed, twice=twice, rehearsed=rehearsed
            )
        self.refill(layout, how)
        for worker in (self.eager, self.candidate):
            worker.reserve(layout.end)
        return layout

    def refill(self, layout: BatchLayout, how: Distribution) -> None:
        """Draw fresh inputs for a batch that is already laid out. Raises VariantFailure as `draw`."""
        fresh = self.layers.has("fresh_inputs")
        if layout.middle > self.drawn.numel():
            self.drawn = torch.empty(layout.middle, dtype=torch.uint8, device=self.device)
        try:
            with self.phases("draw"):
                index = self.draws if fresh else 0
                batch_layout.draw(self.drawn, layout, self.variant.inputs, self.seed, index, how, self._compared)
        except InputError as error:
            raise VariantFailure.of(str(error), "runtime_error", eager=True) from None
        self.draws += 1

    def as_timed(self, seed: int) -> Go:
        """How the calls of a timed exchange are made, and those of one that is observed: nothing tells them apart."""
        return Go(seed if self.settings.protocol == "paper" else None, self.settings.flush_l2)

    def stage(self, worker: WorkerHandle, layout: BatchLayout, seed: int, go: Go) -> Go:
        """Have a worker make a batch of calls ready, of which the inputs are handed over only then: nothing of a pass
        runs between that and the clock. Returns what is to be timed: the calls of `go` but the rehearsed one.

        That one is made here, on inputs of its own: whoever ran in between has emptied the core's caches, and to fill
        them takes longer the more code a call is. All others' inputs are not there yet, so that a pass can do nothing
        for them. `seed` is that of random operators. Raises VariantFailure.
        """
        timeout = self.settings.call_timeout
        fill = self.fills and self.layers.has("poisoned_outputs")
        self.ask(worker, Stage(layout.batch, self.outputs, seed, self.layers.has("output_contract"), fill), timeout)
        if not layout.rehearsed:
            return go
        with self.phases("hand over"):
            batch_layout.hand_over_first(worker.memory, self.drawn, layout)
            self._synchronize()
        with self.phases("rehearse"):
            self.ask(worker, replace(go, end=1), timeout)
        return replace(go, first=1)

    def hand_over(self, worker: WorkerHandle, layout: BatchLayout) -> None:
        """Copy the drawn inputs into a worker's memory, and poison the places of its outputs."""
        with self.phases("hand over"):
            self._cache.clear()
            inputs = slice(layout.start, layout.middle)
            worker.memory[inputs].copy_(self.drawn[inputs])
            batch_layout.withhold(worker.memory, self.drawn, layout)
            if self.layers.has("poisoned_outputs"):
                batch_layout.poison(worker.memory, layout.batch.outputs)
            self._synchronize()

    def spoil_inputs(self, worker: WorkerHandle, layout: BatchLayout) -> None:
        """Overwrite the inputs before outputs are collected, so that work which a pass has put off computes from NaN.

        Inputs that eager writes to, or that share memory with eager's outputs, are results and are left.
        """
        results = {meta.aliases for meta in self.outputs} | self.written
        blocks = tuple(x for n, x in enumerate(layout.batch.inputs) if n not in results)
        with self.phases("spoil inputs"):
            batch_layout.poison(worker.memory, blocks)
            self._synchronize()

    def changed_inputs(self, worker: WorkerHandle, layout: BatchLayout) -> frozenset[int]:
        """Numbers of the inputs whose memory a worker has changed in any call of a batch, or around a call."""
        if batch_layout.same_inputs(worker.memory, self.drawn, layout):
            return frozenset()
        blocks = [(n, x) for n, x in enumerate(layout.batch.inputs) if isinstance(x, Block)]
        return frozenset(n for n, x in blocks if not batch_layout.same(worker.memory, self.drawn, x))

    def most_device_bytes(self) -> int:
        """GPU memory that a candidate may hold: torch's share of it, and what CUDA and kernels take beside torch."""
        _, total = torch.cuda.mem_get_info(self.device) if self.device.type == "cuda" else (0, 0)
        return int(self.settings.device_memory_share * total) + _BESIDE_TORCH

    def end_candidate(self) -> int:
        """End the candidate's worker. Returns how many bytes of GPU memory that freed."""
        if self.device.type != "cuda":
            self.candidate.stop()
            return 0
        before, _ = torch.cuda.mem_get_info(self.device)
        self.candidate.stop()
        self._synchronize()
        after, _ = torch.cuda.mem_get_info(self.device)
        return after - before

    def _check_device_memory(self, taken: int) -> None:
        """Refuse a candidate that holds more GPU memory than it may, what it takes past torch included."""
        self.candidate.device_bytes += taken
        if self.candidate.device_bytes > self.most_device_bytes():
            gib, most = (x / 2**30 for x in (self.candidate.device_bytes, self.most_device_bytes()))
            raise VariantFailure("runtime_error", f"holds {gib:.1f} GiB of the GPU's memory; {most:.1f} are allowed")

    def ask(self, worker: WorkerHandle, command: Command, timeout: float) -> WorkerReply:
        """Send a command and return the reply. Raises VariantFailure on every reply but OK."""
        return self.timed(worker, command, timeout)[0]

    def timed(self, worker: WorkerHandle, command: Command, timeout: float) -> tuple[WorkerReply, int]:
        """As `ask`, with the nanoseconds that it took. Nothing is `_WAITED_FOR` on a CPU: its times mean nothing, and a
        process that spins takes the core from the worker."""
        eager = worker is self.eager
        on_gpu = self.device.type == "cuda"
        measured = not eager and on_gpu and isinstance(command, _MEASURED)
        spin = on_gpu and isinstance(command, _WAITED_FOR)
        free = torch.cuda.mem_get_info(self.device)[0] if measured else 0
        try:
            with self.phases(f"{'eager' if eager else 'candidate'} {type(command).__name__}"):
                reply, nanoseconds = worker.timed(command, timeout, spin=spin)
        except WorkerTimeout as error:
            raise VariantFailure.of(str(error), "timeout", eager=eager) from None
        except WorkerDied as error:
            raise VariantFailure.of(str(error), "runtime_error", eager=eager) from None
        if reply.code is not Code.OK:
            raise VariantFailure.of(reply.text or reply.code.name, _STATUS[reply.code], eager=eager)
        if measured:
            self._check_device_memory(free - torch.cuda.mem_get_info(self.device)[0])
        return reply, nanoseconds

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
