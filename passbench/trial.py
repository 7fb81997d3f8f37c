"""One variant under one compiler, from loading to timing. Eager and candidate run side by side on equal inputs."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from passbench.checking import accuracy, observed_calls
from passbench.checking.correctness import Correctness
from passbench.checking.tolerance import Comparison
from passbench.contract import PassFiles
from passbench.ipc.messages import Load
from passbench.layers import Layers
from passbench.result import EAGER_FAILED, Errors, Times, VariantFailure
from passbench.settings import Settings
from passbench.timing.exchanges import PairExchanges
from passbench.timing.stopwatch import Stopwatch
from passbench.workers.one_thread import one_thread
from passbench.workers.worker_handle import WorkerHandle
from passbench.workers.worker_pair import WorkerPair
from storage.graph.as_json import to_json
from storage.records import Variant

_FIRST_OBSERVED = 16
"""Calls of the exchange that is observed before the timing. Only the timing tells how many calls an exchange has."""


@dataclass(frozen=True)
class TrialCandidate:
    """What is measured against eager: a compiler of `passbench.compilers`, and for "pass" its validated text and the
    directory of the copy that the child imports."""

    compiler: str
    pass_dir: str | None = None
    files: PassFiles | None = None


@dataclass(frozen=True)
class TrialWorkers:
    """The workers of a trial. `double` runs the reference in double precision; None: no reference.

    Eager's worker does not run the reference, since it does nothing that the candidate's worker does not do.
    """

    eager: WorkerHandle
    candidate: WorkerHandle
    double: WorkerHandle | None = None


@dataclass
class TrialOutcome:
    """What a trial found out, as far as it came. `comparison` is the candidate's with eager; `of_eager` eager's with
    itself, made where the candidate is not right at `STRICT`."""

    status: str = "ok"
    reason: str = ""
    error_code: int | None = None
    comparison: Comparison | None = None
    of_eager: Comparison | None = None
    errors: Errors | None = None
    times: Times = field(default_factory=Times)
    matches: int | None = None
    library_ops: tuple[str, ...] | None = None
    capture_used: bool | None = None
    layers: list[str] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)


@one_thread()
def run_trial(
    variant: Variant,
    candidate: TrialCandidate,
    workers: TrialWorkers,
    settings: Settings,
    seed: int,
    report: Callable[[str], None],
) -> TrialOutcome:
    """Load, check and time one variant. What goes wrong in a child is the outcome, and that child is replaced.

    `seed` is that of inputs and order. `report` is called with the name of each stage.
    """
    layers = Layers(settings.off)
    pair = WorkerPair(variant, workers.eager, workers.candidate, settings, seed, layers)
    correctness = Correctness(pair)
    outcome = TrialOutcome(layers=layers.seen, phases=pair.phases.seconds)
    workers.eager.start()
    workers.candidate.start()
    layers.note("two_processes", "empty_environment", "resource_limits", "one_gpu")
    if candidate.files is not None and pair.device.type == "cpu":
        layers.note("kernel_memory")

    def measure() -> None:
        _measure(pair, candidate, workers.double, correctness, outcome, report)

    def repeat_eager() -> None:
        if correctness.is_loose and (outcome.status in ("ok", "wrong") or correctness.result.new_nan):
            report("eager again")
            outcome.of_eager = correctness.of_eager()

    try:
        measure()
    except torch.OutOfMemoryError as error:  # in this process, which runs nothing of the pass
        reason = f"{EAGER_FAILED}: no memory to compare and time it in: {error}"
        failure = VariantFailure("runtime_error", reason, eager=True)
        _fail(
            outcome,
            workers,
            correctness,
            _blamed(failure, pair, candidate, lambda: _eager_twice(pair, workers, report)),
        )
    except VariantFailure as failure:
        _fail(outcome, workers, correctness, _blamed(failure, pair, candidate, lambda: _eager_alone(pair)))
    try:
        repeat_eager()
    except (torch.OutOfMemoryError, VariantFailure) as error:
        # The verdict on the candidate is there: it does not become "eager failed", which enters no score.
        outcome.reason = "; ".join(filter(None, (outcome.reason, f"eager was not repeated: {error}")))
        workers.eager.stop()
    outcome.comparison = correctness.result
    return outcome


def _measure(
    pair: WorkerPair,
    candidate: TrialCandidate,
    double: WorkerHandle | None,
    correctness: Correctness,
    outcome: TrialOutcome,
    report: Callable[[str], None],
) -> None:
    graph = to_json(pair.variant.graph)
    report("eager")
    pair.load(pair.eager, Load(graph, "eager"))
    pair.describe()
    report(f"{candidate.compiler}: load")
    loaded = pair.load(pair.candidate, Load(graph, candidate.compiler, candidate.pass_dir, pair.variant.variant_hash))
    if candidate.compiler == "pass":
        outcome.matches = loaded.count
    pair.layers.note("output_contract", "fresh_inputs", "poisoned_outputs", "inputs_unchanged")
    report("correctness")
    # Eager has been called so already. What a process runs first is what lies first in the GPU's memory for code, and
    # that is worth a few percent of a small kernel.
    pair.call_once(pair.candidate)
    pair.fills = candidate.compiler in ("pass", "eager")  # what a compiler has made allocates in its own ways
    correctness.check_draws(fill=pair.fills)

    def observe(size: int) -> None:
        if candidate.files is not None:
            found = observed_calls.observe(pair, candidate.files, size)
            if found is not None:
                outcome.library_ops = tuple(sorted({*(outcome.library_ops or ()), *found.library_ops}))
                outcome.capture_used = bool(outcome.capture_used) or found.captured

    observe(min(_FIRST_OBSERVED, pair.most_calls()))
    if double is not None:
        report("double precision")
        outcome.errors = accuracy.errors(pair, double, graph)
    report("timing")
    exchanges = PairExchanges(pair, correctness.check_inputs, correctness.compare)
    outcome.times = Stopwatch(exchanges, observe, believed=candidate.files is None).measure()


def _blamed(
    failure: VariantFailure, pair: WorkerPair, candidate: TrialCandidate, without: Callable[[], object]
) -> VariantFailure:
    """The failure, as the pass's own if the pass has made eager, or PassBench itself, fail.

    A pass can fill the GPU or the machine, or bring the GPU to a halt. What fails then is not its process, and a
    variant that eager fails on enters no score. So its worker is ended first. The pass is to blame if it held more GPU
    memory than it may, or if all goes well without it: `without` tries that, and raises what it raised beside the pass.
    """
    if not failure.eager or candidate.files is None:
        return failure
    held = pair.end_candidate()
    if held > pair.most_device_bytes():
        return VariantFailure("runtime_error", f"the pass held {held / 2**30:.1f} GiB of the GPU; {failure.reason}")
    try:
        without()
    except (VariantFailure, torch.OutOfMemoryError):
        return failure
    return VariantFailure("runtime_error", f"this does not happen without the pass: {failure.reason}")


def _eager_alone(pair: WorkerPair) -> None:
    """Whether a new worker of eager runs the graph. Raises VariantFailure and torch.OutOfMemoryError where not."""
    pair.eager.stop()
    pair.ask(pair.eager, Load(to_json(pair.variant.graph), "eager"), pair.settings.load_timeout)
    pair.describe()


def _eager_twice(pair: WorkerPair, workers: TrialWorkers, report: Callable[[str], None]) -> None:
    """Whether this process has room to check and time eager in the pass's place. Raises as `_eager_alone` where not."""
    report("eager in the pass's place")
    twice = WorkerPair(pair.variant, pair.eager, pair.candidate, pair.settings, pair.seed, Layers(pair.settings.off))
    _measure(twice, TrialCandidate("eager"), workers.double, Correctness(twice), TrialOutcome(), report)


def _fail(outcome: TrialOutcome, workers: TrialWorkers, correctness: Correctness, failure: VariantFailure) -> None:
    """Note the verdict, and end the worker that failed, since a failure on the GPU outlasts the call."""
    outcome.status, outcome.reason, outcome.error_code = failure.status, failure.reason, failure.error_code
    correctness.withdraw()
    if failure.status != "no_match":
        (workers.eager if failure.eager else workers.candidate).stop()
