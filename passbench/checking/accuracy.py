"""Which of eager and candidate is nearer to the truth: relative errors against the graph in double precision."""

import torch

from passbench.double_precision import relative_error, wide
from passbench.inputs import batch_layout
from passbench.inputs.batch_layout import BatchLayout
from passbench.inputs.distribution import Distribution
from passbench.ipc.messages import Batch, Block, Code, Load, OutputMeta, RunCalls
from passbench.result import Errors
from passbench.workers.worker_handle import WorkerHandle
from passbench.workers.worker_pair import WorkerPair
from passbench.workers.worker_process import WorkerDied, WorkerTimeout


def errors(pair: WorkerPair, double: WorkerHandle, graph: str) -> Errors | None:
    """Relative errors in the Euclidean norm on one draw, the largest over the outputs.

    `double` is a third worker; it runs `graph`, the variant's graph as JSON. None where there are no floating
    outputs, one call does not fit into the shared memory, or the graph does not run in double precision.
    """
    outputs = tuple(m._replace(dtype=wide(m.dtype)) for m in pair.outputs)
    floating = any(_is_floating(m) for m in outputs)
    if not floating or batch_layout.call_bytes(pair.variant.inputs, outputs) > pair.settings.shared_bytes:
        return None
    layout = pair.draw(1, outputs, Distribution.NORMAL)
    double.reserve(layout.end)
    try:
        reference = _reference(pair, double, graph, layout, outputs)
    except (WorkerDied, WorkerTimeout):
        reference = None
    if reference is None:
        double.stop()
        return None
    return Errors(*(_largest(_run(pair, worker, layout), reference) for worker in (pair.eager, pair.candidate)))


def _reference(
    pair: WorkerPair, double: WorkerHandle, graph: str, layout: BatchLayout, outputs: tuple[OutputMeta, ...]
) -> list[torch.Tensor] | None:
    """The outputs in double precision, None if the graph does not run in it."""
    limits = pair.settings
    if double.ask(Load(graph, "double"), limits.load_timeout).code is not Code.OK:
        return None
    pair.hand_over(double, layout)
    run = RunCalls(layout.batch, outputs, 0, fill=False, strict=False)
    if double.ask(run, limits.first_call_timeout).code is not Code.OK:
        return None
    return _read(double, layout.batch, outputs)


def _run(pair: WorkerPair, worker: WorkerHandle, layout: BatchLayout) -> list[torch.Tensor]:
    """One side's outputs. Places that are wide enough for double precision hold them in their first part."""
    pair.hand_over(worker, layout)
    blocks = tuple(x and x._replace(dtype=m.dtype) for x, m in zip(layout.batch.outputs, pair.outputs, strict=True))
    batch = layout.batch._replace(outputs=blocks)
    run = RunCalls(batch, pair.outputs, 0, fill=False, strict=pair.layers.has("output_contract"))
    pair.ask(worker, run, pair.settings.call_timeout)
    return _read(worker, batch, pair.outputs)


def _read(worker: WorkerHandle, batch: Batch, outputs: tuple[OutputMeta, ...]) -> list[torch.Tensor]:
    return [
        batch_layout.view(worker.memory, block)[0].clone()
        for block, meta in zip(batch.outputs, outputs, strict=True)
        if isinstance(block, Block) and _is_floating(meta)
    ]


def _is_floating(meta: OutputMeta) -> bool:
    return meta.dtype.is_floating_point or meta.dtype.is_complex


def _largest(found: list[torch.Tensor], reference: list[torch.Tensor]) -> float:
    return max(relative_error(a, b) for a, b in zip(found, reference, strict=True))
