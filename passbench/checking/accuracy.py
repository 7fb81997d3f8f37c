"""Who is nearer to the truth: both sides' errors against the graph in double precision."""

from typing import TYPE_CHECKING

import torch

from passbench.double_precision import relative_error, wide
from passbench.inputs import batch_layout as lay
from passbench.inputs.batch_layout import BatchLayout
from passbench.inputs.draw import Distribution
from passbench.ipc.messages import Batch, Block, Code, Load, OutputMeta, RunCalls
from passbench.result import Errors
from passbench.workers.worker_handle import WorkerHandle
from passbench.workers.worker_process import WorkerDied, WorkerTimeout

if TYPE_CHECKING:
    from passbench.trial import Trial


def errors(trial: "Trial") -> Errors | None:
    """Relative errors in the Euclidean norm, the largest over the outputs, on one draw.

    None where there are no floating outputs, the arena is too small, or the graph does not run in double precision.
    """
    doubled = tuple(m._replace(dtype=wide(m.dtype)) for m in trial.outputs)
    floating = any(m.dtype.is_floating_point or m.dtype.is_complex for m in doubled)
    if not floating or lay.call_bytes(trial.variant.inputs, doubled) > trial.settings.arena_bytes:
        return None
    layout = trial.draw(1, doubled, Distribution.NORMAL)
    try:
        reference = _reference(trial, layout, doubled)
    except (WorkerDied, WorkerTimeout):
        reference = None
    if reference is None:
        trial.double.stop()
        return None
    eager = _outputs(trial, trial.eager, layout, trial.outputs)
    candidate = _outputs(trial, trial.candidate, layout, trial.outputs)
    return Errors(_largest(eager, reference), _largest(candidate, reference))


def _reference(trial: "Trial", layout: BatchLayout, doubled: tuple[OutputMeta, ...]) -> list[torch.Tensor] | None:
    """The outputs in double precision, None if the graph does not run in it."""
    side, limits = trial.double, trial.settings
    if side.ask(Load(trial.graph, "double"), limits.load_timeout).code is not Code.OK:
        return None
    trial.hand_over(side, layout)
    run = RunCalls(layout.batch, doubled, 0, fill=False, strict=False)
    if side.ask(run, limits.first_call_timeout).code is not Code.OK:
        return None
    return _read(side, layout.batch, doubled)


def _outputs(
    trial: "Trial", side: WorkerHandle, layout: BatchLayout, outputs: tuple[OutputMeta, ...]
) -> list[torch.Tensor]:
    """Outputs of a side, in the first part of slots that are wide enough for double precision."""
    trial.hand_over(side, layout)
    blocks = tuple(x and x._replace(dtype=m.dtype) for x, m in zip(layout.batch.outputs, outputs, strict=True))
    batch = layout.batch._replace(outputs=blocks)
    trial.ask(
        side, RunCalls(batch, outputs, 0, fill=False, strict=trial.has("output_contract")), trial.settings.call_timeout
    )
    return _read(side, batch, outputs)


def _read(side: WorkerHandle, batch: Batch, outputs: tuple[OutputMeta, ...]) -> list[torch.Tensor]:
    return [
        lay.view(side.memory, block, 1)[0].clone()
        for block, meta in zip(batch.outputs, outputs, strict=True)
        if isinstance(block, Block) and (meta.dtype.is_floating_point or meta.dtype.is_complex)
    ]


def _largest(found: list[torch.Tensor], reference: list[torch.Tensor]) -> float:
    return max(relative_error(a, b) for a, b in zip(found, reference, strict=True))
