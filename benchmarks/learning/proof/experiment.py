"""Stages of `benchmarks.learning.from_scratch`: training, answers along it, expert iteration, what answers are worth.

`Experiment.record` is written down after every stage, from several threads.
"""

import argparse
import json
import random
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import pandas as pd
import torch

from agent.learning.answers import files_of
from benchmarks.learning.beside_training import Task
from benchmarks.learning.decoder.code_tokens import Text
from benchmarks.learning.decoder.copying import repeats
from benchmarks.learning.decoder.replays import Begins, replay_of
from benchmarks.learning.decoder.small_decoder import sample
from benchmarks.learning.decoder.training import Pair, Training
from benchmarks.learning.growing import Growing
from benchmarks.learning.judge import Judge, Verdict, shares
from benchmarks.learning.nearness import by_similarity, memorised
from benchmarks.learning.proof.attempts import Attempts
from benchmarks.learning.timed_answers import HandedIn, timed
from storage.records import Sample

_TEMPERATURE = 0.6
"""Of sampled answers."""
_OWN_ANSWERS = 4
"""Answers to each task of the round of expert iteration."""
_TRAINED = ("steps", "tokens", "answer_tokens", "epochs", "renewals", "losses")
"""What the record has of training."""
_KERNELS = "with kernels alone"
"""The answers after expert iteration where kernels are asked for."""
_RECENT = 10
"""Losses that a point has the mean of."""


@dataclass(frozen=True)
class Authors:
    """What `readable` answers to all tasks, and `distill` to held-out ones; they are asked meanwhile."""

    readable: "list[Future[str]]"
    distill: "list[Future[tuple[str, dict[str, str]]]]"


@dataclass
class Experiment:
    """A model in training, the tasks that it answers, and what is known of its answers so far. `judge` judges in
    `thread`, beside all else."""

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
    judge: Judge
    thread: ThreadPoolExecutor
    answers: list[dict] = field(default_factory=list)
    verdicts: dict[tuple[str, str], Verdict] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=lambda: {"points": []})
    lock: Any = field(default_factory=Lock)
    last: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.attempts = Attempts(self.thread, self._attempt, self.note, self.began + self.arguments.end)

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
        self.attempts.add("after training", self.write_several())
        self.note({"expert_iteration": self.expert_iteration(own_tasks, own, verdicts.result())})
        last = self.answer("after expert iteration")
        with_kernels = self.answer_with_kernels()
        self.attempts.add("after expert iteration", self.write_several())
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
        self.attempts.finish()

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

    def write_several(self, kernels: bool = False) -> list[list[str]]:
        """`--samples` times a sampled answer to each held-out task."""
        texts, count = [t.text for t in self.held_out], self.arguments.samples
        written = self.write(texts * count, _TEMPERATURE, kernels)
        return [written[n * len(texts) : (n + 1) * len(texts)] for n in range(count)]

    def answer_with_kernels(self) -> "Future[list[Verdict]]":
        """What it answers to all tasks where kernels are asked for, greedily and sampled."""
        written = self.write([t.text for t in self.tasks], 0.0, kernels=True)
        judged = self._submit(_KERNELS, [(t.sample, a) for t, a in zip(self.tasks, written, strict=True)])
        judged.add_done_callback(lambda done: self.note({_KERNELS: self.shares(done.result())}))
        self.attempts.add(_KERNELS, self.write_several(kernels=True))
        return judged

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

    def _attempt(self, point: str, answers: Sequence[str]) -> list[Verdict]:
        return self._judged(point, [(task.sample, a) for task, a in zip(self.held_out, answers, strict=True)])

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
