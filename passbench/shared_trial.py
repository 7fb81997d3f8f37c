"""One variant under several candidates at once: eager runs once for all of them, in draws and in timed rounds alike.

Every candidate is judged as `passbench.trial` judges it: the same draws, the same levels, each timed call's outputs.
What is left out guards against passes that deceive (`passbench.timing.rounds` says what), and there is no reference in
double precision. So it is for baselines, and for passes whose author is trusted.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from passbench.checking import observed_calls
from passbench.checking.correctness import Correctness, draw_inputs, run_eager
from passbench.ipc.messages import Load
from passbench.layers import Layers
from passbench.result import EAGER_FAILED, VariantFailure
from passbench.settings import Settings
from passbench.timing.exchanges import PairExchanges
from passbench.timing.rounds import Captures, Rounds, Side, turn_to
from passbench.trial import TrialCandidate, TrialOutcome
from passbench.workers.one_thread import one_thread
from passbench.workers.worker_handle import WorkerHandle
from passbench.workers.worker_pair import WorkerPair
from storage.graph.as_json import to_json
from storage.records import Variant

_OBSERVED = 16
"""Calls of the exchange in which a pass is observed."""


@dataclass(frozen=True)
class SharedCandidate:
    """What is measured, and the worker that runs it, no two candidates in the same one. `keep`: the worker keeps what
    it has compiled before."""

    candidate: TrialCandidate
    worker: WorkerHandle
    keep: bool = False


@one_thread()
def run_shared_trial(
    variant: Variant,
    eager: WorkerHandle,
    candidates: Mapping[str, SharedCandidate],
    settings: Settings,
    seed: int,
    captures: Captures,
) -> dict[str, TrialOutcome]:
    """Load, check and time one variant under all candidates, by name. What goes wrong in a child is its outcome.

    `seed` is that of inputs and order. `captures`: what other variants have shown.
    """
    layers = Layers(settings.off)
    pair = WorkerPair(variant, eager, next(iter(candidates.values())).worker, settings, seed, layers)
    contenders = [_Contender(pair, one) for one in candidates.values()]
    eager.start()
    try:
        _measure(pair, contenders, captures)
    except torch.OutOfMemoryError as error:  # in this process, which runs nothing of a candidate
        reason = f"{EAGER_FAILED}: no memory to compare and time it in: {error}"
        _fail_all(contenders, eager, VariantFailure("runtime_error", reason, eager=True))
    except VariantFailure as failure:
        _fail_all(contenders, eager, failure)
    _repeat_eager(pair, contenders)
    for one in contenders:
        one.outcome.comparison = one.correctness.result
        one.outcome.phases = {name: seconds / len(contenders) for name, seconds in pair.phases.seconds.items()}
    return dict(zip(candidates, (one.outcome for one in contenders), strict=True))


class _Contender:
    """A candidate with its side in the rounds, its comparison and its outcome."""

    def __init__(self, pair: WorkerPair, given: SharedCandidate) -> None:
        self.pair, self.given, self.candidate = pair, given, given.candidate
        self.correctness = Correctness(pair)
        layers = Layers(pair.settings.off)
        self.outcome = TrialOutcome(layers=layers.seen)
        exchanges = PairExchanges(pair, self.correctness.check_inputs, self.correctness.compare)
        self.side = Side(self.candidate.compiler, given.worker, layers, exchanges, self.fail)
        layers.note("two_processes", "empty_environment", "resource_limits", "one_gpu")
        if self.candidate.files is not None and pair.device.type == "cpu":
            layers.note("kernel_memory")

    @property
    def running(self) -> bool:
        """Whether nothing has gone wrong with it so far."""
        return not self.side.failed

    @property
    def fills(self) -> bool:
        """Whether its fresh memory is filled with NaN in draws. What a compiler has made allocates in its own ways."""
        return self.candidate.compiler in ("pass", "eager")

    def fail(self, failure: VariantFailure) -> None:
        """Note the verdict. A pass's worker ends, since a failure on the GPU outlasts the call; another may be well."""
        outcome = self.outcome
        outcome.status, outcome.reason, outcome.error_code = failure.status, failure.reason, failure.error_code
        self.correctness.withdraw()
        if self.given.keep:
            self.given.worker.recover()
        elif failure.status != "no_match" and not failure.eager:
            self.given.worker.stop()


def _measure(pair: WorkerPair, contenders: list[_Contender], captures: Captures) -> None:
    graph = to_json(pair.variant.graph)
    pair.load(pair.eager, Load(graph, "eager"))
    pair.describe()
    for one in contenders:
        with turn_to(pair, one.side):
            _load(pair, one, graph)
    _check_draws(pair, contenders)
    for one in contenders:
        if one.running and one.candidate.files is not None:
            with turn_to(pair, one.side):
                _observe(pair, one)
    sides = {one.side: one for one in contenders if one.running}
    if sides:
        for side, times in Rounds(pair, list(sides), captures).measure().items():
            sides[side].outcome.times = times


def _load(pair: WorkerPair, one: _Contender, graph: str) -> None:
    given, compiler = one.candidate, one.candidate.compiler
    command = Load(graph, compiler, given.pass_dir, pair.variant.variant_hash, one.given.keep)
    loaded = pair.load(pair.candidate, command)
    if compiler == "pass":
        one.outcome.matches = loaded.count
    pair.layers.note("output_contract", "fresh_inputs", "poisoned_outputs", "inputs_unchanged")
    pair.call_once(pair.candidate)


def _check_draws(pair: WorkerPair, contenders: list[_Contender]) -> None:
    """All draws on all candidates. Eager runs on each draw once for those whose allocations are filled, once for the
    others."""
    for number in range(pair.settings.draws):
        layout = draw_inputs(pair, number)
        for fill in (False, True):
            some = [one for one in contenders if one.running and one.fills is fill]
            if not some:
                continue
            drawn = run_eager(pair, layout, first=number == 0, fill=fill)
            for one in some:
                with turn_to(pair, one.side, layout):
                    one.correctness.check_draw(drawn)
    for one in contenders:
        one.correctness.end_draws()


def _observe(pair: WorkerPair, one: _Contender) -> None:
    found = observed_calls.observe(pair, one.candidate.files, min(_OBSERVED, pair.most_calls()))
    if found is not None:
        one.outcome.library_ops, one.outcome.capture_used = tuple(sorted(found.library_ops)), found.captured


def _repeat_eager(pair: WorkerPair, contenders: list[_Contender]) -> None:
    """Compare eager with itself, once for all candidates that are not right at `STRICT`."""
    loose = [
        one
        for one in contenders
        if one.correctness.is_loose and (one.outcome.status in ("ok", "wrong") or one.correctness.result.new_nan)
    ]
    if not loose:
        return
    try:
        of_eager = loose[0].correctness.of_eager()
    except (torch.OutOfMemoryError, VariantFailure) as error:
        for one in loose:
            one.outcome.reason = "; ".join(filter(None, (one.outcome.reason, f"eager was not repeated: {error}")))
        pair.eager.stop()
        return
    for one in loose:
        one.outcome.of_eager = of_eager


def _fail_all(contenders: list[_Contender], eager: WorkerHandle, failure: VariantFailure) -> None:
    """Eager has failed, or this process has no memory: the outcome of all that have not failed by themselves."""
    for one in contenders:
        if one.running:
            one.side.failed = True
            one.fail(failure)
    eager.stop()
