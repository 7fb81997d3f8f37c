"""What other processes of `benchmarks.learning.from_scratch` find meanwhile: new tasks, and what authors answer."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from agent.distill.static import Distill
from agent.learning.answers import answer_of
from agent.learning.leaks import HeldOut
from agent.llm.task import describe_graphs
from agent.readable.author import Readable
from benchmarks.learning.composed import composed
from benchmarks.learning.graph_sources import shown, small, window_samples
from passbench.contract import read_pass_dir
from storage.records import Sample

LARGEST = 60_000
"""Elements of a variant that is interpreted, at most."""
_WINDOWS = 4
"""Windows of a traced graph that are looked at."""


@dataclass(frozen=True)
class Task:
    """A task to answer: the sample as it is judged, its text, and whether it is of a family kept for validation."""

    sample: Sample
    text: str
    validation: bool = False


def new_tasks(
    traces: Sequence[Path], seed: int, count: int, longest: int, held: HeldOut, known: set[str]
) -> list[Task]:
    """Tasks of graphs that no demonstration shows: windows of traced models, or without traces graphs that are put
    together at random. `known`: the graphs of the demonstrations. No two are of a family."""
    samples = _windows(traces, seed) if traces else composed(seed)
    new = (s for s in samples if s.variants[0].graph_hash not in known and not held.why_not(s))
    return list(islice(_short(new, longest), count))


def _windows(traces: Sequence[Path], seed: int) -> Iterator[Sample]:
    for place in traces:
        yield from window_samples(place, (0, 1), _WINDOWS, seed)


def _short(samples: Iterable[Sample], longest: int) -> Iterator[Task]:
    families = set()
    for one in samples:
        judged = small(one, LARGEST)
        text = describe_graphs(shown(one))
        if judged is not None and len(text) <= longest and one.family_hash not in families:
            families.add(one.family_hash)
            yield Task(judged, text)


def readable_answer(sample: Sample) -> str:
    """What the author of the demonstrations answers; empty where it writes nothing."""
    files = Readable(margin=-100.0, seconds=10.0).write(sample).files
    return answer_of(files) if files else ""


def distill_answer(sample: Sample) -> tuple[str, dict[str, str]]:
    """What `distill` hands in without tuning: a compiler of PassBench, and the files of its pass."""
    with tempfile.TemporaryDirectory() as place:
        made = Distill(seconds=5.0).write(sample, Path(place) / "pass")
        files = read_pass_dir(made.pass_dir).files if made.pass_dir else {}
        return made.compiler, dict(files)
