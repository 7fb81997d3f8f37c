"""Do demonstrations teach anything? A decoder from random weights learns to write passes, on a GPU within minutes.

    python -m benchmarks.learning.from_scratch --data FILE… --held-out VERSION_DIR --out DIR [--train-seconds 240]

Trains a tokenizer and a decoder on demonstrations (`benchmarks.learning.make_demonstrations`), and has it answer
tasks of families that are in none of them: before, at five points of training, and after one round of expert
iteration on new tasks, of which it keeps its own answers that PassBench finds right: windows of the models of
`--traces`, or graphs that are put together at random.
Tasks are of held-out samples, and with `--validation VERSION…` of families of these versions which the demonstrations
keep for validation. Numbers change from epoch to epoch (`benchmarks.learning.decoder.renumbered`). Whether an answer
is right is found out on the CPU, while the GPU goes on. Points also have what the model predicts of demonstrations
that are kept for validation and of some that it learns from, and how many answers repeat their task's lines.
`--copies SHARE` mixes in examples that are drawn to teach copying (`benchmarks.learning.decoder.copying`). With
`--replays N` demonstrations for tasks of at least N lines replay eager's calls (`benchmarks.learning.decoder.replays`),
and where the author's answer has kernels alone it is learned as well. Answers to such tasks begin as replays do; at the
end the model also answers all tasks with kernels.
`--growing N` has N processes put further graphs together while it trains. `--bench-seconds` are spent on timing its
last answers to held-out tasks on the GPU, beside those of `distill` and `readable`, while sampled answers are judged on
the CPU. Of those as many are judged as there is time for until `--end`, those after expert iteration first.
At the end it prints the curve and what answers are worth as tables, which `curve_figure` makes of a record that broke
off, too.
Needs torch, triton, numpy, pandas, pyarrow and tokenizers.

Leaves DIR/record.json and DIR/answers.parquet, as far as it got, after every stage. `--tiny` tries everything on a CPU
within minutes and learns nothing.
"""

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import compress
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq
import torch

from agent.learning.demonstrations import split_of
from agent.learning.leaks import HeldOut
from agent.llm.task import describe_graphs
from benchmarks.learning import curve_figure
from benchmarks.learning.beside_training import LARGEST, Task, distill_answer, new_tasks, readable_answer
from benchmarks.learning.decoder.code_tokens import Text
from benchmarks.learning.decoder.replays import Begins, with_replays
from benchmarks.learning.decoder.sequences import Renewing, Sequences
from benchmarks.learning.decoder.small_decoder import Decoder, Shape
from benchmarks.learning.decoder.training import Training
from benchmarks.learning.graph_sources import held_out_samples, shown, small, version_samples
from benchmarks.learning.growing import Growing
from benchmarks.learning.journals import as_rows, journal
from benchmarks.learning.judge import Judge
from benchmarks.learning.nearness import all_nearest
from benchmarks.learning.proof.experiment import Authors, Experiment
from passbench.result import libraries
from passbench.workers.preloaded_forks import forks_with
from storage.errors import PassNetError
from storage.records import Sample
from storage.versions.version import Version

_LOOKED_AT = 200
"""Demonstrations that it learns from whose prediction a point has, too."""


def eval_tasks(samples: Sequence[Sample], count: int, longest: int, validation: bool = False) -> list[Task]:
    """Tasks of these samples with small inputs, a graph of each family, spread evenly over all that there are."""
    found = []
    for one in sorted({s.family_hash: s for s in samples}.values(), key=lambda s: s.sample):
        first = one.variants[0].graph_hash
        mine = replace(one, variants=tuple(v for v in one.variants if v.graph_hash == first))
        chosen, text = small(mine, LARGEST), describe_graphs(shown(mine))
        if chosen is not None and len(text) <= longest:
            found.append(Task(chosen, text, validation))
    return [found[n * len(found) // count] for n in range(count)] if len(found) > count else found


def validation_tasks(versions: Sequence[Path], held: HeldOut, count: int, longest: int) -> list[Task]:
    """Tasks of families of these versions that the demonstrations keep for validation, a graph of each."""
    one_each: dict[str, Sample] = {}
    for place in versions:
        kept = version_samples(Version.open(place), wanted=lambda family: split_of(family) == "validation")
        one_each |= {s.family_hash: s for s in kept if not held.why_not(s)}
    return eval_tasks(list(one_each.values()), count, longest, True)


def main(given: Sequence[str] | None = None) -> int:
    """Run the experiment."""
    arguments = _arguments(given)
    arguments.out.mkdir(parents=True, exist_ok=True)
    began, device = time.monotonic(), torch.device(arguments.device)
    torch.manual_seed(arguments.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    held_samples = held_out_samples(arguments.held_out)
    held = HeldOut.of(held_samples)
    rows = [row for path in arguments.data for row in pq.read_table(path).to_pylist()]
    known = {row["graph_hash"] for row in rows}
    written = [row for place in arguments.written for row in as_rows(journal(place))]
    rows += [row for row in written if row["split"] == "train" and row["graph_hash"] not in known]
    rows = [r for r in rows if r["family_hash"] not in held.families and tuple(r["op_sequence"]) not in held.sequences]
    if arguments.replays:
        rows = [each for row in rows for each in with_replays(row, arguments.replays)]
    with (
        Growing(arguments.growing, arguments.held_out, arguments.seed) as growing,
        ProcessPoolExecutor(3, forks_with("torch._dynamo", "triton")) as beside,
        ExitStack() as opened,
    ):
        time.sleep(arguments.wait)
        train = _of_training([*rows, *growing.new_rows()])
        text = Text.trained([t for r in train for t in (r["task"], r["answer"])], arguments.vocabulary)
        width, layers = (64, 2) if arguments.tiny else (arguments.width, arguments.layers)
        heads = max(2, width // 64)
        shape = Shape(text.tokenizer.get_vocab_size(), width, layers, heads, arguments.context, arguments.dropout)
        model = Decoder(shape).to(device)
        sequences = Sequences(list(train), text, arguments.context, arguments.seed, arguments.copies, arguments.replays)
        pairs = sequences.as_they_are()
        if not pairs:
            raise PassNetError(f"no demonstration fits into {arguments.context} tokens: raise --context")
        rng = random.Random(arguments.seed)

        def further() -> list[dict]:
            new = _of_training(growing.new_rows())
            train.extend(new)
            return new

        renewing = opened.enter_context(Renewing(sequences, further))
        training = Training(model, pairs, arguments.batch_tokens, arguments.rate, rng, renewing)
        tasks = eval_tasks(held_samples, arguments.families, arguments.longest_task)
        tasks += validation_tasks(arguments.validation, held, arguments.families, arguments.longest_task)
        graphs = {r["graph_hash"] for r in rows}
        new = (
            arguments.traces,
            arguments.seed + 77_777,
            arguments.own_tasks,
            arguments.longest_task // 2,
            held,
            graphs,
        )
        own_tasks = beside.submit(new_tasks, *new)
        authors = Authors(
            [beside.submit(readable_answer, task.sample) for task in tasks],
            [beside.submit(distill_answer, task.sample) for task in tasks if not task.validation],
        )
        unseen = [r for r in rows if r["split"] == "validation"]
        kept = text.pairs([(r["task"], r["answer"]) for r in unseen])
        fitting = [len(ids) <= arguments.context for ids, _ in kept]
        kept, unseen = list(compress(kept, fitting)), list(compress(unseen, fitting))
        near = beside.submit(all_nearest, _sequences(unseen), set(_sequences(train)))
        learned = rng.sample(pairs, min(len(pairs), _LOOKED_AT))
        begins = Begins.of([row["answer"] for row in train], text)
        judge = opened.enter_context(Judge(arguments.workers))
        thread = opened.enter_context(ThreadPoolExecutor(1))
        given = (train, tasks, text, begins, training, kept, near, learned, own_tasks, authors)
        run = Experiment(arguments, *given, began, judge, thread)
        run.note(
            {
                "arguments": {name: str(value) for name, value in vars(arguments).items() if name != "out"},
                "seed": arguments.seed,
                "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
                "libraries": libraries(),
                "parameters": sum(p.numel() for p in model.parameters()),
                "vocabulary": shape.vocabulary,
                "median_tokens": {
                    "task": _median(p for _, p in pairs),
                    "answer": _median(len(i) - p for i, p in pairs),
                },
                "demonstrations": _counts(train),
                "tasks": len(run.tasks),
                "validation_tasks": sum(task.validation for task in run.tasks),
                "validation_demonstrations": len(kept),
                "prepare_seconds": time.monotonic() - began,
                "compile_seconds": training.compile() if device.type == "cuda" else 0.0,
            }
        )
        run.learn(growing)
        run.note({"seconds": time.monotonic() - began})
        print(f"{curve_figure.table(run.record)}\n\n{curve_figure.ends(run.record)}", flush=True)
    return 0


def _sequences(rows: Iterable[dict]) -> list[tuple[str, ...]]:
    return [tuple(row["op_sequence"]) for row in rows]


def _of_training(rows: Iterable[dict]) -> list[dict]:
    return [row for row in rows if row["split"] == "train"]


def _counts(rows: Sequence[dict]) -> dict[str, Any]:
    return {
        "rows": len(rows),
        "graphs": len({r["graph_hash"] for r in rows}),
        "families": len({r["family_hash"] for r in rows}),
        **{f"of kind {kind}": count for kind, count in Counter(r["kind"] for r in rows).items()},
        "checked": sum(bool(r["checked"]) for r in rows),
    }


def _median(numbers: Iterable[int]) -> int:
    return int(median(numbers))


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data", type=Path, nargs="*", default=[], help="files of demonstrations; none: those of --growing alone")
    add("--written", type=Path, action="append", default=[], help="a journal of passes to learn from, not checked")
    add("--held-out", type=Path, action="append", required=True, help="a version whose evaluation samples ask")
    add("--out", type=Path, required=True)
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--seed", type=int, default=0)
    add("--train-seconds", type=float, default=240.0)
    add("--points", type=int, default=5, help="how often it answers the tasks while it is trained")
    add("--steps", type=int, default=None, help="steps of training between two points, at most")
    add("--growing", type=int, default=0, help="processes that put further demonstrations together meanwhile")
    add("--wait", type=float, default=0.0, help="seconds that they have before training begins")
    add("--families", type=int, default=48, help="held-out tasks, and as many of --validation, at most")
    add("--validation", type=Path, action="append", default=[], help="a version whose families kept for validation ask")
    add("--longest-task", type=int, default=4000, help="characters of a task, at most")
    add("--variants", type=int, default=2, help="variants of a task on which an answer is judged")
    add("--samples", type=int, default=8, help="answers to each task for pass@k")
    add("--own-tasks", type=int, default=96, help="tasks of the round of expert iteration")
    add("--traces", type=Path, action="append", default=[], help="traces whose windows are those tasks")
    add("--dropout", type=float, default=0.1)
    add("--copies", type=float, default=0.0, help="share of examples that are drawn to teach copying")
    add("--replays", type=int, default=0, help="lines of a task that are replayed, at least; 0: none is")
    add("--end", type=float, default=1e9, help="seconds from the start after which no sampled answer is judged")
    add("--workers", type=int, default=6, help="processes that judge")
    add("--bench-seconds", type=float, default=60.0)
    add("--width", type=int, default=640)
    add("--layers", type=int, default=12)
    add("--context", type=int, default=2560)
    add("--longest", type=int, default=1500, help="tokens of an answer")
    add("--vocabulary", type=int, default=2048)
    add("--batch", type=int, default=256, help="answers that are written at a time")
    add("--batch-tokens", type=int, default=24_000)
    add("--rate", type=float, default=1e-3)
    add("--tiny", action="store_true")
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.exit(main())
