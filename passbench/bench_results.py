"""What a benchmark makes of a trial: one `VariantResult`, with the layers that were on and the hardware."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from passbench.checking.tolerance import STRICT, Comparison
from passbench.compilers import numerics
from passbench.result import EAGER_VARIES, ERROR_CODES, VariantResult, device_name
from passbench.settings import Settings
from passbench.timing import bandwidth
from passbench.trial import TrialCandidate, TrialOutcome
from storage.records import Sample, Variant
from storage.versions.provenance import source_commit


class BenchResults:
    """Results on one device under these settings. `why_not_isolated` says why workers have no namespaces, if so; it may
    wait for the first of them."""

    def __init__(
        self, device: torch.device, settings: Settings, hardware: dict[str, str], why_not_isolated: Callable[[], str]
    ) -> None:
        self._device, self._settings = device, settings
        self._hardware, self._why_not_isolated = hardware, why_not_isolated

    def refused(self, sample: Sample, status: str, reason: str, files: tuple) -> Iterator[VariantResult]:
        """A result per variant of a pass that is malformed or that the static policy refuses."""
        for variant in sample.variants:
            base = self._plain(sample, variant, "pass", status)
            code = ERROR_CODES.get(status)
            yield replace(base, reason=reason, error_code=code, pass_files=files, layers=("static_policy",))

    def of(self, sample: Sample, variant: Variant, candidate: TrialCandidate, outcome: TrialOutcome) -> VariantResult:
        """What a trial found out, without when and amid what it was."""
        agreement, missing, files = outcome.comparison, self._missing_layers(), candidate.files
        return replace(
            self._plain(sample, variant, candidate.compiler, outcome.status),
            reason=_with_eager(outcome.reason or _worst_element(agreement), outcome.of_eager),
            error_code=outcome.error_code,
            t_min=agreement.t_min if agreement else None,
            t_min_eager=outcome.of_eager.t_min if outcome.of_eager else None,
            levels=agreement.levels if agreement else {},
            levels_eager=outcome.of_eager.levels if outcome.of_eager else {},
            max_abs_error=agreement.max_abs_error if agreement else None,
            errors=outcome.errors,
            times=outcome.times,
            layers=self._layers(candidate.compiler, outcome.layers, missing),
            layers_missing=missing,
            matches=outcome.matches,
            library_ops=outcome.library_ops,
            capture_used=outcome.capture_used,
            pass_files=tuple(files.files.items()) if files else (),
            phases=outcome.phases,
        )

    def _layers(self, compiler: str, seen: list[str], missing: dict[str, str]) -> tuple[str, ...]:
        static = ["static_policy"] if compiler == "pass" else []
        namespaces = [] if "namespaces" in missing else ["namespaces"]
        return tuple(x for x in (*static, *namespaces, *seen) if x not in self._settings.off)

    def _missing_layers(self) -> dict[str, str]:
        """Layers that cannot work on this machine, and why."""
        reasons = {"namespaces": self._why_not_isolated()}
        if self._device.type == "cpu":
            reasons["bandwidth"] = "no GPU"
        elif bandwidth.bytes_per_us(self._device) is None:
            reasons["bandwidth"] = "the device does not tell its memory's rate"
        return {layer: why for layer, why in reasons.items() if why}

    def _plain(self, sample: Sample, variant: Variant, compiler: str, status: str) -> VariantResult:
        return VariantResult(
            sample.sample,
            sample.category,
            variant.variant_hash,
            compiler,
            status,
            times_meaningful=self._device.type == "cuda",
            device=device_name(self._device),
            protocol=self._settings.protocol,
            numerics=numerics(compiler),
            commit=source_commit(),
            hardware=self._hardware,
        )


def _worst_element(agreement: Comparison | None) -> str:
    """The element that differs most in a variant that is not right at `STRICT`, as text; empty for one that is."""
    if agreement is None or agreement.worst is None or agreement.t_min is None or agreement.t_min <= STRICT:
        return ""
    return f"not right below t = {agreement.t_min}: {agreement.worst}"


def _with_eager(reason: str, of_eager: Comparison | None) -> str:
    """The reason, and `EAGER_VARIES` where eager called twice does not agree with itself at `STRICT` either."""
    if of_eager is None or (of_eager.t_min is not None and of_eager.t_min <= STRICT):
        return reason
    level = "at no level" if of_eager.t_min is None else f"only from t = {of_eager.t_min}"
    return f"{reason}; {EAGER_VARIES} {level}: {of_eager.worst}"
