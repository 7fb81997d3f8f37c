"""The stages of a build, in their order, as whoever shows progress is told them."""

from flows.progress import RunStage

STAGES = ("configs", "trace", "cut", "typical", "vary", "publish")
"""configs: a piece is some of the catalogue's entries. trace: a piece is a model. cut: a shard of models, for sole_op
and fusible. typical: the same shards again, for what repeats. vary: a shard of subgraphs. publish: grouping, splitting
and writing, one piece."""


def build_stage(name: str, total: int, *, done: int = 0, work: float | None = None) -> RunStage:
    """A stage of `STAGES` that begins now; see `RunStage`."""
    return RunStage(name, total, done=done, work=work, number=STAGES.index(name) + 1, of=len(STAGES))
