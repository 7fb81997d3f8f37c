"""PassBench: a sample and a compiler in, one result per variant out."""

import hashlib
import itertools
import json
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Self

import torch

from passbench.bench_results import BenchResults
from passbench.contract import ContractError, PassFiles, read_pass_dir, write_pass_dir
from passbench.ipc.messages import Code, Warm
from passbench.names import COMPILERS
from passbench.policy.check import check_files
from passbench.result import Finding, VariantResult
from passbench.settings import Settings
from passbench.timing.gpu_conditions import Surroundings, busy, compared
from passbench.trial import TrialCandidate, TrialWorkers, run_trial
from passbench.workers import precompile
from passbench.workers.fork_server_client import Launcher, shared_launcher
from passbench.workers.worker_handle import WorkerHandle
from passbench.workers.worker_process import OWN_FILES
from storage.errors import PassNetError
from storage.records import Sample

Progress = Callable[[str], None]
"""Called with a line of text as a benchmark goes on."""

_VARIANTS_OF_A_PROCESS = 10
"""Eager is then run by a fresh process, from the next sample on, which costs 0.3 to 0.5 s. Two processes of the same
code differ by about 0.5 %, up to 1.3 %, in what a call costs the host, for as long as they live: over a whole run that
would be a bias of all speedups."""


class Bench:
    """Benchmarks samples on one device; keeps the eager worker, and those of baselines, warm between samples.

    Use it as a context manager. One benchmark at a time: the device is timed. Raises PassNetError if the device is
    not there.
    """

    def __init__(self, device: str | torch.device = "cpu", settings: Settings | None = None) -> None:
        self.device = _usable(device)
        self.settings = (settings or Settings()).resolved(self.device)
        self._scratch = Path(tempfile.mkdtemp(prefix="passbench-"))
        interpret = self.device.type == "cpu"
        self._launcher = shared_launcher(interpret=interpret)
        self._launcher.start()  # it imports torch while this process opens the device
        self._baseline_launcher = shared_launcher(interpret=False)  # TorchInductor must not see Triton's interpreter
        self._surroundings = Surroundings(self.device)
        hardware = self._surroundings.hardware()
        self._results = BenchResults(self.device, self.settings, hardware, self._launcher.why_not_isolated)
        self._eager = self._worker("eager", self._launcher)
        self._double = self._worker("double", self._launcher) if self.settings.double else None
        self._warm: dict[str, WorkerHandle] = {}
        self._idle: list[WorkerHandle] = []  # of passes, none at work
        self._prepared: dict[Path, WorkerHandle] = {}
        self._compiled: dict[tuple[str, str], WorkerHandle] = {}  # of baselines, by compiler and sample
        self._variants = 0  # since eager's processes were started

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers and remove their files."""
        for worker in self._workers():
            worker.close()
        for held in (self._warm, self._idle, self._prepared, self._compiled):
            held.clear()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def run(
        self, sample: Sample, compiler: str, pass_dir: str | Path | None = None, progress: Progress | None = None
    ) -> Iterator[VariantResult]:
        """One result per variant of `sample`, in order, as they come.

        `compiler` is one of `passbench.names.COMPILERS`; "pass" needs `pass_dir`. A malformed or refused pass gives a
        result per variant too. Raises PassNetError on an unknown compiler or a missing `pass_dir` alone.
        """
        if compiler not in COMPILERS:
            raise PassNetError(f"compiler {compiler!r} is unknown; there are {', '.join(COMPILERS)}")
        if not (self._prepared or self._compiled):  # eager's worker has called what is prepared
            self._renew_eager()
        if compiler != "pass":
            yield from self._run_baseline(sample, compiler, progress)
            return
        if pass_dir is None:
            raise PassNetError('compiler "pass" needs a pass directory')
        yield from self._run_pass(sample, Path(pass_dir), progress)

    def precompile(
        self,
        work: Sequence[tuple[str, Sample]],
        workers: int,
        deadline: float = inf,
    ) -> list[tuple[str, precompile.Missed]]:
        """Have baselines compile samples ahead, `workers` at a time; `run` times them in the workers that did.

        Each pair of a compiler and a sample gets a worker, so that these should be a few dozen. Only for baselines:
        their code is trusted, so that processes may share a cache. Nothing is compiled after `deadline`, on the clock
        of `time.monotonic`. Returns what was not compiled, with its compiler; `run` compiles it itself, or makes a
        record of the failure.
        """
        for compiler, _ in work:
            if compiler not in COMPILERS or compiler in ("pass", "eager"):
                raise PassNetError(f"{compiler!r} compiles nothing ahead; there are {', '.join(COMPILERS)}")
        self._renew_eager()
        slowest_first = sorted(work, key=lambda one: one[0] != "inductor-max-autotune")
        jobs = [
            # The first variant comes last: a worker keeps the latest that it has compiled.
            precompile.Job(self._worker(compiler, self._baseline_launcher), sample.variants[::-1], compiler)
            for compiler, sample in slowest_first
        ]
        missed = []
        done = precompile.in_order(jobs, workers, deadline)
        for (compiler, sample), (job, left) in zip(slowest_first, done, strict=True):
            missed += [(compiler, one) for one in left]
            if left:
                job.worker.close()
            else:
                self._compiled[compiler, sample.sample] = job.worker
        self._rest(self._compiled)
        return missed

    def prepare(self, jobs: Sequence[tuple[Sample, str | Path]]) -> None:
        """Compile several passes at a time, before `run` times them one after another.

        Each pass gets a worker, which compiles it and calls it once for each variant. Eager's worker calls each
        variant, too. Nothing is timed meanwhile. A pass that `run` will refuse is left out. A pass that tunes itself is
        not called: it would choose by times that the others disturb.
        """
        self._renew_eager()
        work = []
        for sample, directory in jobs:
            try:
                files = read_pass_dir(directory)
            except ContractError:
                continue
            if self._refusals(files):
                continue
            room = self._room(files)
            if room in self._prepared:
                continue
            worker = self._prepared[room] = self._pass_worker(room)
            tunes = any("autotune" in text for text in files.modules.values())
            work.append(precompile.Job(worker, () if tunes else sample.variants, "pass", str(room / "pass")))
        variants = list({v.variant_hash: v for job in work for v in job.variants}.values())
        for worker, compiler in ((self._eager, "eager"), (self._double, "double")):
            if worker is not None and variants:
                work.append(precompile.Job(worker, variants, compiler))
        precompile.together(work)
        self._rest(self._prepared)

    def _rest(self, waiting: Mapping[object, WorkerHandle]) -> None:
        """Have workers wait for `run`. Where they leave too little of the GPU's memory to what is timed, they end."""
        for worker in waiting.values():
            worker.pause()
        if self.device.type == "cuda":
            free, total = torch.cuda.mem_get_info(self.device)
            if free < total / 2:
                for worker in waiting.values():
                    worker.stop()

    def _renew_eager(self) -> None:
        """Have fresh processes run eager from now on, where the present ones have run many variants."""
        if self._variants >= _VARIANTS_OF_A_PROCESS:
            self._variants = 0
            self._eager.stop()
            if "eager" in self._warm:
                self._warm["eager"].stop()

    def _refusals(self, files: PassFiles) -> list[Finding]:
        """Findings of the static policy, unless it is off."""
        return [] if "static_policy" in self.settings.off else check_files(files)

    def _run_baseline(self, sample: Sample, compiler: str, progress: Progress | None) -> Iterator[VariantResult]:
        worker = self._compiled.pop((compiler, sample.sample), None)
        if worker is None:
            yield from self._trials(sample, compiler, self._baseline_worker(compiler), None, None, progress)
            return
        worker.resume()
        try:
            yield from self._trials(sample, compiler, worker, None, None, progress)
        finally:
            worker.close()

    def _admitted(self, sample: Sample, pass_dir: Path) -> tuple[PassFiles | None, list[VariantResult]]:
        """The text of a pass; None for one that is malformed or refused, with what that makes of each variant."""
        try:
            files = read_pass_dir(pass_dir)
        except ContractError as error:
            return None, list(self._results.refused(sample, "compile_error", str(error), ()))
        findings = self._refusals(files)
        if not findings:
            return files, []
        first, texts = findings[0], tuple(files.files.items())
        reason = f"{first.rule}: {first.file}:{first.line}: {first.message}"
        refused = self._results.refused(sample, "rejected", reason, texts)
        return None, [replace(result, findings=tuple(findings)) for result in refused]

    def _run_pass(self, sample: Sample, pass_dir: Path, progress: Progress | None) -> Iterator[VariantResult]:
        files, refused = self._admitted(sample, pass_dir)
        yield from refused
        if files is None:
            return
        room = self._room(files)
        worker = self._prepared.pop(room, None)
        if worker is None:
            worker = self._pass_worker(room)
        worker.resume()
        try:
            yield from self._trials(sample, "pass", worker, str(room / "pass"), files, progress)
        finally:
            worker.stop()
            for name in OWN_FILES:  # the pass may have filled them with gigabytes
                shutil.rmtree(room / "box" / name, ignore_errors=True)
            worker.shrink()
            self._idle.append(worker)

    def _pass_worker(self, room: Path) -> WorkerHandle:
        """A handle for a fresh worker of one pass alone.

        Compiled kernels are kept for the same text, and for no other.
        """
        if not self._idle:
            return WorkerHandle(self.device, self.settings, self._launcher, room / "box")
        worker = self._idle.pop()
        worker.move(room / "box")
        return worker

    def _room(self, files: PassFiles) -> Path:
        """The directory for passes of this text: `pass` has the validated copy, `box` is the worker's to write to."""
        room = self._scratch / f"pass-{_digest(files.files)[:16]}"
        if not room.exists():
            write_pass_dir(files.files, room / "pass")
            if self.device.type == "cuda":
                shutil.copytree(self._triton_cache(), room / "box" / "triton")
        return room

    def _triton_cache(self) -> Path:
        """A cache directory with what Triton builds once for all kernels. A worker that sees no pass fills it."""
        box = self._scratch / "warm" / "box"
        if not box.exists():
            worker = WorkerHandle(self.device, self.settings, self._launcher, box)
            try:
                reply = worker.ask(Warm(), self.settings.first_call_timeout)
            finally:
                worker.close()
            if reply.code is not Code.OK:
                raise PassNetError(f"Triton does not work here: {reply.text}")
        return box / "triton"

    def _trials(
        self,
        sample: Sample,
        compiler: str,
        worker: WorkerHandle,
        pass_dir: str | None,
        files: PassFiles | None,
        progress: Progress | None,
    ) -> Iterator[VariantResult]:
        for number, variant in enumerate(sample.variants, 1):
            where = f"{sample.sample} {number}/{len(sample.variants)}"

            def report(stage: str, where: str = where) -> None:
                if progress is not None:
                    progress(f"{where}: {stage}")

            self._variants += 1
            begin, before = time.monotonic(), self._surroundings.look()
            seed = secrets.randbits(62) if self.settings.seed is None else self.settings.seed
            candidate = TrialCandidate(compiler, pass_dir, files)
            workers = TrialWorkers(self._eager, worker, self._double)
            outcome = run_trial(variant, candidate, workers, self.settings, seed, report)
            after = self._surroundings.look()
            report(outcome.status)
            yield replace(
                self._results.of(sample, variant, candidate, outcome),
                seed=seed,
                surroundings=compared(before, after),
                busy=busy(before, after, self._processes()),
                seconds=time.monotonic() - begin,
            )

    def _processes(self) -> int:
        """Processes of this benchmark that may use the GPU: this one, and its workers."""
        return 2 + len(self._workers())  # and the candidate's worker, which nothing may hold meanwhile

    def _workers(self) -> list[WorkerHandle]:
        """All that are held."""
        held = (self._warm.values(), self._idle, self._prepared.values(), self._compiled.values())
        workers = (self._eager, self._double, *itertools.chain(*held))
        return [worker for worker in workers if worker is not None]

    def _baseline_worker(self, compiler: str) -> WorkerHandle:
        if compiler not in self._warm:
            self._warm[compiler] = self._worker(
                compiler, self._launcher if compiler == "eager" else self._baseline_launcher
            )
        return self._warm[compiler]

    def _worker(self, name: str, launcher: Launcher) -> WorkerHandle:
        return WorkerHandle(self.device, self.settings, launcher, self._box(name))

    def _box(self, name: str) -> Path:
        """The directory that a worker of ours writes to.

        Baselines share one, and in it what TorchInductor has compiled. The one that tunes has its own.
        """
        shared = name in COMPILERS and name not in ("eager", "inductor-max-autotune")
        return self._scratch / ("inductor" if shared else name) / "box"


def bench(
    sample: Sample,
    compiler: str,
    pass_dir: str | Path | None = None,
    device: str = "cpu",
    settings: Settings | None = None,
    progress: Progress | None = None,
) -> Iterator[VariantResult]:
    """One sample under one compiler with workers of its own; see `Bench.run`. For many samples use `Bench`."""
    with Bench(device, settings) as one:
        yield from one.run(sample, compiler, pass_dir, progress)


def _digest(content: object) -> str:
    """SHA-256 of JSON content, in hexadecimal."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _usable(device: str | torch.device) -> torch.device:
    device = torch.device(device)
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise PassNetError("no NVIDIA GPU is available; use --device cpu")
        return torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
    if device.type != "cpu":
        raise PassNetError(f"device {device} is not supported; use cpu or cuda")
    return device
