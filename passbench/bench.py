"""PassBench: a sample and a compiler in, one result per variant out."""

import contextlib
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Self

import torch

from passbench.compilers import NAMES
from passbench.contract import ContractError, PassFiles, read_pass_dir, write_pass_dir
from passbench.policy import check_files
from passbench.result import ERROR_CODES, VariantResult, device_name
from passbench.settings import Settings
from passbench.side import Side
from passbench.trial import Trial
from storage.errors import PassNetError
from storage.records import Sample, Variant

Progress = Callable[[str], None]
"""Called with a line of text as a benchmark goes on."""


class Bench:
    """Benchmarks samples on one device; keeps the eager worker, and those of baselines, warm between samples.

    Use it as a context manager. One benchmark at a time: the device is timed. Raises PassNetError if the device is
    not there.
    """

    def __init__(self, device: str | torch.device = "cpu", settings: Settings | None = None) -> None:
        self.device = _checked(device)
        self.settings = (settings or Settings()).resolved(self.device)
        self._scratch = Path(tempfile.mkdtemp(prefix="passbench-"))
        self._eager = self._side("reference")
        self._warm: dict[str, Side] = {}
        self._passes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers and remove their files."""
        for side in (self._eager, *self._warm.values()):
            side.close()
        self._warm.clear()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def run(
        self, sample: Sample, compiler: str, pass_dir: str | Path | None = None, progress: Progress | None = None
    ) -> Iterator[VariantResult]:
        """One result per variant of `sample`, in order, as they come.

        `compiler` is one of `compilers.NAMES`; "pass" needs `pass_dir`. A malformed or refused pass gives a result per
        variant too. Raises PassNetError on an unknown compiler or a missing `pass_dir` alone.
        """
        if compiler not in NAMES:
            raise PassNetError(f"compiler {compiler!r} is unknown; there are {', '.join(NAMES)}")
        if compiler != "pass":
            yield from self._trials(sample, compiler, self._warm_side(compiler), None, (), progress)
            return
        if pass_dir is None:
            raise PassNetError('compiler "pass" needs a pass directory')
        yield from self._run_pass(sample, Path(pass_dir), progress)

    def _run_pass(self, sample: Sample, pass_dir: Path, progress: Progress | None) -> Iterator[VariantResult]:
        try:
            files = read_pass_dir(pass_dir)
        except ContractError as error:
            yield from self._refused(sample, "compile_error", str(error), ())
            return
        texts = tuple(files.files.items())
        findings = check_files(files)
        if findings:
            first = findings[0]
            reason = f"{first.rule}: {first.file}:{first.line}: {first.message}"
            for result in self._refused(sample, "rejected", reason, texts):
                yield replace(result, findings=tuple(findings))
            return
        with self._pass_side(files) as (side, copy):
            yield from self._trials(sample, "pass", side, str(copy), texts, progress)

    @contextlib.contextmanager
    def _pass_side(self, files: PassFiles) -> Iterator[tuple[Side, Path]]:
        """A worker of this pass alone, with a copy of exactly the text that was validated."""
        self._passes += 1
        side = self._side(f"pass-{self._passes}")
        try:
            copy = side.scratch / "pass"
            write_pass_dir(files.files, copy)
            yield side, copy
        finally:
            side.close()
            shutil.rmtree(side.scratch, ignore_errors=True)

    def _refused(self, sample: Sample, status: str, reason: str, files: tuple) -> Iterator[VariantResult]:
        for variant in sample.variants:
            base = self._result(sample, variant, "pass", status)
            code = ERROR_CODES.get(status)
            yield replace(base, reason=reason, error_code=code, pass_files=files, layers=("static_policy",))

    def _trials(
        self,
        sample: Sample,
        compiler: str,
        side: Side,
        pass_dir: str | None,
        files: tuple,
        progress: Progress | None,
    ) -> Iterator[VariantResult]:
        for number, variant in enumerate(sample.variants, 1):
            where = f"{sample.sample} {number}/{len(sample.variants)}"

            def report(stage: str, where: str = where) -> None:
                if progress is not None:
                    progress(f"{where}: {stage}")

            begin = time.monotonic()
            seed = secrets.randbits(62) if self.settings.seed is None else self.settings.seed
            outcome = Trial(variant, self._eager, side, self.settings, seed, report).run(compiler, pass_dir)
            compared = outcome.comparison
            report(outcome.status)
            yield replace(
                self._result(sample, variant, compiler, outcome.status),
                reason=outcome.reason,
                error_code=outcome.error_code,
                t_min=compared.t_min if compared else None,
                max_abs_error=compared.max_abs_error if compared else None,
                timings=outcome.timings,
                layers=("static_policy", *outcome.layers) if compiler == "pass" else tuple(outcome.layers),
                matches=outcome.matches,
                pass_files=files,
                seconds=time.monotonic() - begin,
            )

    def _result(self, sample: Sample, variant: Variant, compiler: str, status: str) -> VariantResult:
        return VariantResult(
            sample.sample,
            sample.category,
            variant.variant_hash,
            compiler,
            status,
            times_meaningful=self.device.type == "cuda",
            device=device_name(self.device),
            protocol=self.settings.protocol,
        )

    def _warm_side(self, compiler: str) -> Side:
        if compiler not in self._warm:
            self._warm[compiler] = self._side(compiler)
        return self._warm[compiler]

    def _side(self, name: str) -> Side:
        interpret = self.device.type == "cpu" and name.startswith("pass-")
        return Side(self.device, self.settings, self._scratch / name, interpret=interpret)


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


def _checked(device: str | torch.device) -> torch.device:
    device = torch.device(device)
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise PassNetError("no NVIDIA GPU is available; use --device cpu")
        return torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
    if device.type != "cpu":
        raise PassNetError(f"device {device} is not supported; use cpu or cuda")
    return device
