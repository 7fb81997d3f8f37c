"""A run's samples on all benches: cut into lots, handed out, and begun again where a bench's process ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from agent.author import RunLimitReached
from agent.run.evaluation_run import EvaluationRun, evaluate_lot, lots
from flows.evaluate.benches import Benches
from flows.progress import RunStage
from flows.steps import say
from storage.records import Sample

ROUNDS = 3
"""How often a sample is begun whose benchmark's process ends. From the second time on it is a lot of its own."""


@dataclass(frozen=True)
class Ended:
    """How a run ended: `lost` are the samples whose benchmark's process ended each time, `stopped` says which limit of
    the run was reached, if one was."""

    lost: tuple[str, ...] = ()
    stopped: str = ""


def evaluate_samples(run: EvaluationRun, samples: Sequence[Sample], benches: Benches) -> Ended:
    """Evaluate the samples that have no rows yet, on all benches. Raises what an author or a bench raises."""
    step, left = partial(evaluate_lot, run), run.unfinished(samples)
    if len(left) < len(samples):
        say(f"{run.name}: {len(samples) - len(left)} of {len(samples)} samples are finished already")
    stage = RunStage(f"evaluate {run.author.name}", len(samples), done=len(samples) - len(left))
    for begun in range(ROUNDS):
        cut = lots(left, 1 if begun else run.lot_size, benches.count, len(samples))
        try:
            # A model's answers are waited for here, where its run's budget is; everything else is the processor's work.
            for _ in benches.map(step, cut, "evaluate-samples", here=bool(run.author.model_name)):
                for _ in range(len(samples) - len(run.unfinished(samples)) - stage.done):
                    stage.advance()
        except RunLimitReached as limit:
            say(str(limit))
            return Ended(stopped=str(limit))
        left = run.unfinished(samples)
        if not left:
            break
    return Ended(tuple(sample.sample for _, sample in left))
