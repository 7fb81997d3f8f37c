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
Needs torch, triton, numpy, pandas, pyarrow and tokenizers.

Leaves DIR/record.json and DIR/answers.parquet, as far as it got, after every stage. `--tiny` tries everything on a CPU
within minutes and learns nothing.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import compress
from pathlib import Path
from statistics import median
from threading import Lock
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import torch

from agent.learning.answers import files_of
from agent.learning.demonstrations import split_of
from agent.learning.leaks import HeldOut
from agent.llm.task import describe_graphs
from benchmarks.learning.beside_training import LARGEST, Task, distill_answer, new_tasks, readable_answer
from benchmarks.learning.decoder.code_tokens import Text
from benchmarks.learning.decoder.copying import repeats
from benchmarks.learning.decoder.replays import Begins, replay_of, with_replays
from benchmarks.learning.decoder.sequences import Renewing, Sequences
from benchmarks.learning.decoder.small_decoder import Decoder, Shape, sample
from benchmarks.learning.decoder.training import Pair, Training
from benchmarks.learning.graph_sources import held_out_samples, shown, small, version_samples
from benchmarks.learning.growing import Growing
from benchmarks.learning.journals import as_rows, journal
from benchmarks.learning.judge import Judge, Verdict, shares
from benchmarks.learning.nearness import all_nearest, by_similarity, memorised
from benchmarks.learning.timed_answers import HandedIn, timed
from passbench.result import libraries
from passbench.score import pass_at_k
from passbench.workers.preloaded_forks import forks_with
from storage.errors import PassNetError
from storage.records import Sample
from storage.versions.version import Version

_TEMPERATURE = 0.6
"""Of sampled answers."""
_OWN_ANSWERS = 4
"""Answers to each task of the round of expert iteration."""
_LOOKED_AT = 200
"""Demonstrations that it learns from whose prediction a point has, too."""
_TRAINED = ("steps", "tokens", "answer_tokens", "epochs", "renewals", "losses")
"""What the record has of training."""
_KERNELS = "with kernels alone"
"""The answers after expert iteration where kernels are asked for."""
_RECENT = 10
"""Losses that a point has the mean of."""


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
        run = _Experiment(
            arguments, train, tasks, text, begins, training, kept, near, learned, own_tasks, authors, began
        )
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
        with Judge(arguments.workers) as judge, ThreadPoolExecutor(1) as thread:
            run.judge, run.thread = judge, thread
            run.learn(growing)
    run.note({"seconds": time.monotonic() - began})
    print(json.dumps({k: v for k, v in run.record.items() if k != "nearest"}, indent=1))
    return 0


@dataclass(frozen=True)
class Authors:
    """What `readable` answers to all tasks, and `distill` to held-out ones; they are asked meanwhile."""

    readable: "list[Future[str]]"
    distill: "list[Future[tuple[str, dict[str, str]]]]"


@dataclass
class _Experiment:
    arguments: argparse.Namespace
    train: list[dict]
    tasks: list[Task]
    text: Text
    begins: Begins
    training: Training
    kept: list[Pair]
    near: "Future[list[float]]"
    learned: list[Pair]
    own_tasks: "Future[list[Task]]"
    authors: Authors
    began: float
    judge: Judge | None = None
    thread: ThreadPoolExecutor | None = None
    answers: list[dict] = field(default_factory=list)
    verdicts: dict[tuple[str, str], Verdict] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=lambda: {"points": []})
    lock: Any = field(default_factory=Lock)
    last: list[str] = field(default_factory=list)
    sampled: "list[tuple[str, list[str]]]" = field(default_factory=list)
    sampled_verdicts: dict[str, list[list[Verdict]]] = field(default_factory=dict)
    judging: "Future[list[Verdict]] | None" = None

    def learn(self, growing: Growing) -> None:
        """Training, answers along it, a round of expert iteration, answers after it, and what they are worth."""
        arguments, training = self.arguments, self.training
        self.answer("before")
        share = arguments.train_seconds / arguments.points
        readable = None
        for point in range(arguments.points):
            if point == arguments.points // 2:  # those who judge have nothing else to do, and answers are there
                readable = self.thread.submit(self.judge_readable)
            training.run(share, (point / arguments.points, (point + 1) / arguments.points), arguments.steps)
            self.answer(f"{(point + 1) * share:.0f} s of training")
        growing.close()
        trained = {name: getattr(training, name) for name in _TRAINED}
        trained |= {"seconds": arguments.train_seconds, "sequences": len(training.sequences)}
        self.note({"trained": trained | {"put together meanwhile": growing.rows}})
        own_tasks = self.own_tasks.result()
        own = self.write([task.text for _ in range(_OWN_ANSWERS) for task in own_tasks], _TEMPERATURE)
        pairs = [(t.sample, a) for t, a in zip(own_tasks * _OWN_ANSWERS, own, strict=True)]
        verdicts = self._submit("own tasks", pairs)
        self.judge_sampled("after training", self.write_several())
        self.note({"expert_iteration": self.expert_iteration(own_tasks, own, verdicts.result())})
        last = self.answer("after expert iteration")
        with_kernels = self.answer_with_kernels()
        self.judge_sampled("after expert iteration", self.write_several())
        if self.kept:
            whole = by_similarity(self.near.result(), self.training.whole(self.kept))
            self.note({"whole_by_similarity_to_the_nearest": whole})
        if training.device.type == "cuda" and arguments.bench_seconds:
            torch.cuda.empty_cache()  # a benchmark stops what waits where the GPU has little memory left
            self.timed()
        for judged in (last, with_kernels, readable):
            judged.result()
        final = [a for a in self.answers if a["point"] == "after expert iteration"]
        self.note(memorised(self.train, [t.sample for t in self.tasks], final))
        self.finish_judging()

    def write(self, texts: Sequence[str], temperature: float, kernels: bool = False) -> list[str]:
        """What the model answers to these tasks. Its answers begin as replays do where there can be one, and all as
        those with `kernels` where these are asked for."""
        least, found = self.arguments.replays, list[str]()
        for start in range(0, len(texts), self.arguments.batch):
            part = texts[start : start + self.arguments.batch]
            replayed = [bool(least) and replay_of(t, least) is not None for t in part]
            begun = [self.begins.kernels if kernels else self.begins.replay if one else [] for one in replayed]
            prompts = [[*self.text.prompt(t), *ids] for t, ids in zip(part, begun, strict=True)]
            written = sample(self.training.model, prompts, self.text.end, temperature, self.arguments.longest)
            found += [self.text.tokenizer.decode([*a, *b]) for a, b in zip(begun, written, strict=True)]
        return found

    def answer(self, point: str) -> "Future[list[Verdict]]":
        """The model's greedy answers to all tasks; they are judged in the background, and become a point."""
        begin = time.monotonic()
        written = self.write([t.text for t in self.tasks], 0.0)
        losses = self.training.losses[-_RECENT:]
        about = {
            "point": point,
            "steps": self.training.steps,
            "loss": sum(losses) / len(losses) if losses else None,
            "kept_families": self.training.on(self.kept) if self.kept else None,
            "learned_from": self.training.on(self.learned),
            "repeats": sum(repeats(t.text, a) for t, a in zip(self.tasks, written, strict=True)) / len(self.tasks),
            "at_seconds": round(begin - self.began, 1),
            "answer_seconds": round(time.monotonic() - begin, 1),
        }
        self.last = written
        judged = self._submit(point, [(t.sample, a) for t, a in zip(self.tasks, written, strict=True)])
        judged.add_done_callback(lambda done: self.point(about | self.shares(done.result())))
        return judged

    def shares(self, verdicts: Sequence[Verdict]) -> dict[str, Any]:
        """The shares of the held-out tasks, and of those of families kept for validation."""
        by_kind = {
            kind: [v for t, v in zip(self.tasks, verdicts, strict=True) if t.validation == kind]
            for kind in (False, True)
        }
        return shares(by_kind[False]) | ({"validation families": shares(by_kind[True])} if by_kind[True] else {})

    @property
    def held_out(self) -> list[Task]:
        """The tasks of held-out samples."""
        return [task for task in self.tasks if not task.validation]

    def write_several(self, kernels: bool = False) -> list[str]:
        """Sampled answers to all held-out tasks, `--samples` of each."""
        texts = [t.text for _ in range(self.arguments.samples) for t in self.held_out]
        return self.write(texts, _TEMPERATURE, kernels)

    def answer_with_kernels(self) -> "Future[list[Verdict]]":
        """What it answers to all tasks where kernels are asked for, greedily and sampled."""
        written = self.write([t.text for t in self.tasks], 0.0, kernels=True)
        judged = self._submit(_KERNELS, [(t.sample, a) for t, a in zip(self.tasks, written, strict=True)])
        judged.add_done_callback(lambda done: self.note({_KERNELS: self.shares(done.result())}))
        self.judge_sampled(_KERNELS, self.write_several(kernels=True))
        return judged

    def judge_sampled(self, point: str, written: list[str]) -> None:
        """Have what `write_several` wrote judged, before what waits; what is submitted meanwhile comes in between."""
        size = len(self.held_out)
        with self.lock:
            self.sampled[:0] = [(point, written[n : n + size]) for n in range(0, len(written), size)]
            idle = self.judging is None
        if idle:
            self._judge_an_attempt()

    def _judge_an_attempt(self) -> None:
        """Judge an answer to each held-out task, then the next attempt that waits."""
        with self.lock:
            if not self.sampled:
                self.judging = None
                return
            point, written = self.sampled.pop(0)

        def done(judged: "Future[list[Verdict]]") -> None:
            attempts = self.sampled_verdicts.setdefault(point, [])
            attempts.append(judged.result())
            self.note({f"pass_at_k {point}": _pass_at(attempts)})
            self._judge_an_attempt()

        pairs = [(task.sample, answer) for task, answer in zip(self.held_out, written, strict=True)]
        self.judging = self._submit(f"sampled {point}", pairs)
        self.judging.add_done_callback(done)

    def finish_judging(self) -> None:
        """Wait until all sampled answers are judged, or until `--end`."""
        end = self.began + self.arguments.end
        while (judging := self.judging) is not None and time.monotonic() < end:
            wait([judging], timeout=min(1.0, end - time.monotonic()))
            if judging.done():
                judging.result()  # raises what judging has raised
                time.sleep(0.05)  # until the next attempt is submitted
        with self.lock:
            self.sampled.clear()

    def point(self, found: dict[str, Any]) -> None:
        """Keep a point of the curve."""
        print(json.dumps(found), flush=True)
        self.note({"points": [*self.record["points"], found]})

    def note(self, found: dict[str, Any]) -> None:
        """Add to the record, and write down what there is; points come from another thread."""
        with self.lock:
            self.record |= found
            (self.arguments.out / "record.json").write_text(json.dumps(self.record, indent=1) + "\n", "utf-8")
            if self.answers:
                pd.DataFrame(list(self.answers)).to_parquet(self.arguments.out / "answers.parquet", index=False)

    def _submit(self, point: str, pairs: list[tuple[Sample, str]]) -> "Future[list[Verdict]]":
        return self.thread.submit(self._judged, point, pairs)

    def _judged(self, point: str, pairs: list[tuple[Sample, str]]) -> list[Verdict]:
        new = {(s.sample, a): (s, a) for s, a in pairs if (s.sample, a) not in self.verdicts}
        found = self.judge.judge(list(new.values()), self.arguments.variants)
        self.verdicts |= dict(zip(new, found, strict=True))
        verdicts = [self.verdicts[sample.sample, answer] for sample, answer in pairs]
        for (_, answer), verdict in zip(pairs, verdicts, strict=True):
            self.answers.append({"point": point, "answer": answer, **verdict.to_row()})
        return verdicts

    def expert_iteration(
        self, tasks: Sequence[Task], written: Sequence[str], verdicts: Sequence[Verdict]
    ) -> dict[str, Any]:
        """One round: of the answers to new tasks, those that are right are learned in addition."""
        arguments, training = self.arguments, self.training
        kept = {(v.sample, a) for a, v in zip(written, verdicts, strict=True) if v.right}
        by_name = {t.sample.sample: t.text for t in tasks}
        own = [self.text.pair(by_name[name], answer) for name, answer in sorted(kept)]
        training.add([pair for pair in own if len(pair[0]) <= arguments.context] * 2)
        training.run(arguments.train_seconds / 8, (0.9, 1.0), arguments.steps)
        return {"tasks": len(tasks), "answers": len(written), "kept": len(kept), **shares(verdicts)}

    def judge_readable(self) -> None:
        """What `readable` itself answers to the tasks: the author of the demonstrations is the ceiling."""
        answers = [one.result() for one in self.authors.readable]
        verdicts = self._judged("readable", [(t.sample, a) for t, a in zip(self.tasks, answers, strict=True)])
        self.point({"point": "readable", **self.shares(verdicts)})

    def timed(self) -> None:
        """On the GPU: the model's last greedy answers to held-out tasks, and the passes of `distill` (not tuned) and of
        `readable`."""
        readable = [one.result() for one in self.authors.readable]
        given = [pair for t, *pair in zip(self.tasks, self.last, readable, strict=True) if not t.validation]
        made = [one.result() for one in self.authors.distill]
        tasks = [
            (
                task.sample,
                (
                    HandedIn("model", "pass", files_of(answer)),
                    HandedIn("readable", "pass", files_of(other)),
                    HandedIn("distill", *distilled),
                ),
            )
            for task, (answer, other), distilled in zip(self.held_out, given, made, strict=True)
        ]
        random.Random(self.arguments.seed).shuffle(tasks)  # time may end before all are done
        for found in timed(tasks, self.arguments.variants, self.arguments.bench_seconds):
            self.note({"timed": found})


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


def _pass_at(attempts: Sequence[Sequence[Verdict]]) -> dict[str, float]:
    """pass@1 and pass@k over tasks, of k attempts at each; and the share of tasks at which the first attempt that the
    policy allows is right."""
    count = len(attempts)
    of_tasks = list(zip(*attempts, strict=True))
    right = [sum(v.right for v in of_task) for of_task in of_tasks]
    found = {f"pass@{k}": sum(pass_at_k(count, n, k) for n in right) / max(1, len(right)) for k in sorted({1, count})}
    first = [next((v.right for v in of_task if v.allowed), False) for of_task in of_tasks]
    return found | {"first allowed": sum(first) / max(1, len(first)), "attempts": count}


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
