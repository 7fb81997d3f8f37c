"""Many compilers on each sample at once: what `Bench` measures one by one, measured in the same rounds.

Baselines and passes are compiled first, by several processes that keep all they have compiled, and only then is
anything timed. All but those of the sample at hand are stopped meanwhile.
Eager runs once for all candidates, so that a variant under eight of them takes two to three times as long as under one.
`passbench.shared_trial` says what is left out: it is for baselines and for passes whose author is trusted. Rows have
"shared" for their protocol.
"""

import itertools
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

import torch

from passbench.bench import Bench
from passbench.names import COMPILERS
from passbench.result import VariantResult
from passbench.settings import Settings
from passbench.shared_trial import SharedCandidate, run_shared_trial
from passbench.timing.gpu_conditions import busy, compared
from passbench.timing.rounds import Captures
from passbench.trial import TrialCandidate
from passbench.workers import precompile
from passbench.workers.worker_handle import WorkerHandle
from storage.errors import PassNetError
from storage.records import Sample, Variant

PROTOCOL = "shared"

LOST = "the process that kept it has ended"
"""Why a variant was missed that had been compiled, or was at work: the cache may have it."""

_COMPILED_FIRST = ("inductor-direct", "inductor-strict-direct")
"""What compiles for the first time; the others of the same mode find it in the cache a little later."""

_BLOCK = 24
"""Variants of which all compilers come before the next variants, so that a deadline leaves the first ones whole."""


class SharedBench(Bench):
    """A `Bench` that also measures several compilers on a sample at once, in `run_together`."""

    def __init__(self, device: str | torch.device = "cpu", settings: Settings | None = None) -> None:
        super().__init__(device, settings)
        self._keepers: list[WorkerHandle] = []
        self._kept: dict[tuple[str, str], WorkerHandle] = {}  # by compiler and variant
        self._kept_passes: dict[Path, WorkerHandle] = {}  # by the pass's room
        self._captures = Captures()

    def compile_all(
        self,
        compilers: Sequence[str],
        variants: Sequence[Variant],
        processes: int,
        deadline: float = inf,
        grace: float = 30.0,
    ) -> list[tuple[str, precompile.Missed]]:
        """Have new processes compile and keep all variants under all baselines named, at least as many processes as
        compilers. Nothing is begun after `deadline` (`time.monotonic`); what is at work `grace` seconds later is ended
        with its process and what that kept. Returns what was missed, with its compiler.

        The compilers of a variant are in different processes, which take turns in the timing. All share a cache:
        max-autotune should not be among others.
        """
        if unknown := [one for one in compilers if one not in COMPILERS or one in ("pass", "eager")]:
            raise PassNetError(f"{unknown[0]!r} compiles nothing ahead; there are {', '.join(COMPILERS)}")
        if not compilers:
            return []
        count = max(processes, len(compilers))
        workers = [self._worker(compilers[0], self._baseline_launcher) for _ in range(count)]
        jobs = [(compilers[place], variants[number]) for number, place in _in_order(len(variants), compilers)]
        done = precompile.shared_out(workers, jobs, deadline, grace)
        for job, _ in done:
            self._kept[job.compiler, job.variants[0].variant_hash] = job.worker
        missed = [(job.compiler, one) for job, left in done for one in left]
        for compiler, (variant, reason) in missed:
            if reason == precompile.NO_TIME:
                del self._kept[compiler, variant.variant_hash]
        known = {(compiler, variant.variant_hash) for compiler, (variant, _) in missed}
        for job in (job for job, _ in done if not job.worker.alive):
            for variant in job.variants:
                lost = self._kept.pop((job.compiler, variant.variant_hash), None) is not None
                if lost and (job.compiler, variant.variant_hash) not in known:
                    missed.append((job.compiler, precompile.Missed(variant, LOST)))
        self._keep(workers)
        return missed

    def compile_passes(
        self,
        jobs: Sequence[tuple[Sample, Path]],
        processes: int,
        deadline: float = inf,
        grace: float = 10.0,
    ) -> list[Sample]:
        """Have new processes compile and keep passes, several in each, which spares most passes a process of their own:
        for passes that have one author, who is trusted. Those that capture a CUDA graph are kept by other processes
        than those that do not: its streams stay in use. Returns the samples whose passes were missed: those have
        processes of their own in `run_together`, as have those that it will refuse. Limits are as in `compile_all`.
        """
        rooms: dict[Path, list[Sample]] = {}  # equal passes of several samples share one
        tuning, capturing = set(), set()
        for sample, directory in jobs:
            files, _ = self._admitted(sample, directory)
            if files is not None:
                rooms.setdefault(self._room(files), []).append(sample)
                for word, which in (("autotune", tuning), ("captured(", capturing)):
                    if any(word in text for text in files.modules.values()):
                        which.add(self._room(files))
        places = _places([room in capturing for room in rooms], processes)
        workers = [self._pass_keeper() for _ in range(max(places, default=-1) + 1)]
        queues: list[list[precompile.Job]] = [[] for _ in workers]
        for (room, samples), place in zip(rooms.items(), places, strict=True):
            self._kept_passes[room] = workers[place]
            variants = tuple(v for sample in samples for v in sample.variants)
            variants = () if room in tuning else variants  # it would choose by times that the others disturb
            job = precompile.Job(self._kept_passes[room], variants, "pass", str(room / "pass"), keep=True)
            queues[place].append(job)
        missed = []
        for job, left in precompile.by_worker(queues, deadline, grace):
            if left or not job.worker.alive:
                room = Path(job.pass_dir).parent
                del self._kept_passes[room]
                missed += rooms[room]
        self._keep(workers)
        return missed

    def _pass_keeper(self) -> WorkerHandle:
        box = self._box(f"passes-{len(self._keepers)}-{secrets.token_hex(4)}")
        if self.device.type == "cuda":
            shutil.copytree(self._triton_cache(), box / "triton")
        return WorkerHandle(self.device, self.settings, self._launcher, box)

    def _keep(self, workers: Sequence[WorkerHandle]) -> None:
        self._keepers += workers
        self._rest_again(workers)

    def _rest_again(self, workers: Sequence[WorkerHandle]) -> None:
        """Have workers do nothing until their next turn, with little memory: there may be fifty of them. One that has
        started processes ends, and keeps nothing any more."""
        for worker in workers:
            worker.release()
            worker.pause()
        ended = {worker for worker in workers if not worker.alive}
        for kept in (self._kept, self._kept_passes):
            for what in [what for what, worker in kept.items() if worker in ended]:
                del kept[what]

    def compiled(self, compiler: str, variant: Variant) -> bool:
        """Whether a process keeps the variant as `compile_all` had it compiled."""
        return (compiler, variant.variant_hash) in self._kept

    def compiler_cache(self, compiler: str) -> Path:
        """Where TorchInductor keeps what it compiles for a baseline, and looks for it first."""
        return self._box(compiler) / "inductor"

    def run_together(
        self, sample: Sample, named: Mapping[str, tuple[str, Path | None]]
    ) -> Iterator[dict[str, VariantResult]]:
        """For each variant of `sample` a result of each author, by name. `named` has an author's compiler, and for
        "pass" its directory; no compiler but "pass" may be named twice. Baselines that `compile_all` has missed are
        compiled now.
        """
        if not self._prepared:  # eager's worker has called what is prepared
            self._renew_eager()
        candidates, refused = {}, {}
        for name, (compiler, pass_dir) in named.items():
            if compiler != "pass":
                candidates[name] = TrialCandidate(compiler)
                continue
            files, refused[name] = self._admitted(sample, pass_dir)
            if files is not None:
                candidates[name] = TrialCandidate("pass", str(self._room(files) / "pass"), files)
        own, kept = {}, {}  # workers of passes, by name
        for name, one in candidates.items():
            if one.files is not None:
                keeper = self._kept_passes.get(Path(one.pass_dir).parent)
                if keeper is None or keeper in kept.values():
                    own[name] = self._prepared_worker(one)
                else:
                    kept[name] = keeper
        try:
            for number, variant in enumerate(sample.variants):
                found = self._together(sample, variant, candidates, own, kept) if candidates else {}
                yield {name: found[name] if name in found else refused[name][number] for name in named}
        finally:
            for worker in own.values():
                worker.stop()
                worker.shrink()
                self._idle.append(worker)

    def _prepared_worker(self, one: TrialCandidate) -> WorkerHandle:
        room = Path(one.pass_dir).parent
        worker = self._prepared.pop(room, None) or self._pass_worker(room)
        worker.resume()
        return worker

    def _together(
        self,
        sample: Sample,
        variant: Variant,
        candidates: Mapping[str, TrialCandidate],
        own: Mapping[str, WorkerHandle],
        kept: Mapping[str, WorkerHandle],
    ) -> dict[str, VariantResult]:
        self._variants += 1
        begin, before = time.monotonic(), self._surroundings.look()
        seed = secrets.randbits(62) if self.settings.seed is None else self.settings.seed
        sides = {}
        for name, one in candidates.items():
            if name in own:
                sides[name] = SharedCandidate(one, own[name])
            elif name in kept:
                sides[name] = SharedCandidate(one, kept[name], keep=True)
            else:
                sides[name] = SharedCandidate(one, *self._worker_of(one.compiler, variant))
        resumed = [side.worker for side in sides.values() if side.keep]
        for worker in resumed:
            worker.resume()
        try:
            outcomes = run_shared_trial(variant, self._eager, sides, self.settings, seed, self._captures)
        finally:
            self._rest_again(resumed)
        after, seconds = self._surroundings.look(), (time.monotonic() - begin) / len(sides)
        around, disturbed = compared(before, after), busy(before, after, self._processes())
        return {
            name: replace(
                self._results.of(sample, variant, candidates[name], outcome),
                protocol=PROTOCOL,
                seed=seed,
                surroundings=around,
                busy=disturbed,
                seconds=seconds,
            )
            for name, outcome in outcomes.items()
        }

    def _worker_of(self, compiler: str, variant: Variant) -> tuple[WorkerHandle, bool]:
        """The worker that runs a baseline, and whether it keeps what it has compiled."""
        kept = self._kept.get((compiler, variant.variant_hash))
        return (self._baseline_worker(compiler), False) if kept is None else (kept, True)

    def _workers(self) -> list[WorkerHandle]:
        return [*super()._workers(), *self._keepers]

    def close(self) -> None:
        """End all workers and remove their files."""
        super().close()
        for held in (self._keepers, self._kept, self._kept_passes):
            held.clear()


def _places(captures: Sequence[bool], processes: int) -> list[int]:
    """For each pass the number of its process, of at most so many. The passes that capture have the last processes, as
    many as is their share. With one process all are in it, with four each kind has two: two passes of a sample come one
    after another here, and one process runs one of a sample."""
    count, rest = sum(captures), len(captures) - sum(captures)
    if not count or not rest or processes < 2:
        return [number % processes for number in range(len(captures))]
    least = min(2, processes // 2)
    last = min(max(round(processes * count / len(captures)), least), processes - least, count)
    first = min(processes - last, rest)
    numbers = {True: itertools.count(), False: itertools.count()}
    return [first + next(numbers[one]) % last if one else next(numbers[one]) % first for one in captures]


def _in_order(variants: int, compilers: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Numbers of variants and compilers, in the order in which they are compiled."""
    for start in range(0, variants, _BLOCK):
        for early in (True, False):
            for number in range(start, min(start + _BLOCK, variants)):
                for place, compiler in enumerate(compilers):
                    if (compiler in _COMPILED_FIRST) is early:
                        yield number, place
