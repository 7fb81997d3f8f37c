"""Do demonstrations teach anything? A decoder from random weights learns to write passes, on a GPU within minutes.

    python -m benchmarks.learning.from_scratch --data FILE… --held-out VERSION_DIR --out DIR [--train-seconds 110]

Trains a tokenizer and a decoder on demonstrations (`benchmarks.learning.make_demonstrations`), and has it answer tasks
of families that are in none of them: before, at five points of training, and after one round of expert iteration on
tasks that are put together at random, of which it keeps its own answers that PassBench finds right. Whether an answer
is right is found out on the CPU, while the GPU goes on; `--bench-seconds` are then spent on timing the last answers on
the GPU, beside those of the author `readable`. Needs torch, triton, numpy, pandas, pyarrow and tokenizers.

Leaves DIR/record.json and DIR/answers.parquet. `--tiny` tries everything on a CPU within minutes and learns nothing.
"""

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from agent.learning.answers import answer_of, files_of
from agent.learning.leaks import HeldOut
from agent.learning.reward import Reward
from agent.learning.rewards import Rewards
from agent.llm.task import describe_graphs
from agent.readable.author import Readable
from benchmarks.learning.composed import composed
from benchmarks.learning.judge import Judge, Verdict, shares
from benchmarks.learning.make_demonstrations import held_out_samples, small
from benchmarks.learning.small_decoder import Decoder, Shape, sample
from passbench.result import libraries
from passbench.score import pass_at_k
from passbench.settings import Settings
from storage.errors import PassNetError
from storage.records import Sample

TIMED = Settings(double=False, timing_budget=2.0, pairs=4, repeats=1, draws=3)


@dataclass
class Text:
    """The tokenizer. A sequence is task, `answer`, the answer, `end`."""

    tokenizer: Tokenizer
    answer: int
    end: int

    @classmethod
    def trained(cls, texts: Sequence[str], vocabulary: int) -> "Text":
        """Byte-level BPE of these texts."""
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=["<end>", "<answer>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(texts, trainer)
        return cls(tokenizer, tokenizer.token_to_id("<answer>"), tokenizer.token_to_id("<end>"))

    def prompt(self, task: str) -> list[int]:
        """A task, ready to be answered."""
        return [*self.tokenizer.encode(task).ids, self.answer]

    def pair(self, task: str, answer: str) -> tuple[list[int], int]:
        """A whole sequence, and how long its task is."""
        prompt = self.prompt(task)
        return [*prompt, *self.tokenizer.encode(answer).ids, self.end], len(prompt)


@dataclass
class Training:
    """A decoder being trained on sequences, by the clock."""

    model: Decoder
    sequences: list[tuple[list[int], int]]
    batch_tokens: int
    rate: float
    rng: random.Random
    steps: int = 0
    tokens: int = 0
    losses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        decayed = [p for p in self.model.parameters() if p.dim() > 1]
        others = [p for p in self.model.parameters() if p.dim() == 1]
        groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=self.rate, betas=(0.9, 0.95))
        self._queue: list[list[int]] = []

    def run(self, seconds: float, progress: tuple[float, float], most_steps: int | None = None) -> None:
        """Train for so long; the learning rate goes from one share of its schedule to another."""
        begin, done = time.monotonic(), 0
        while (share := (time.monotonic() - begin) / seconds) < 1 and done != most_steps:
            at = progress[0] + share * (progress[1] - progress[0])
            self._step(
                self.rate * min(1.0, (self.steps + 1) / 100) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * at)))
            )
            done += 1

    def _step(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        device = self.model.embedding.weight.device
        chosen = self._next()
        length = max(len(self.sequences[n][0]) for n in chosen)
        tokens = torch.zeros(len(chosen), length, dtype=torch.long)
        weights = torch.zeros(len(chosen), length)
        for row, number in enumerate(chosen):
            ids, prompt = self.sequences[number]
            tokens[row, : len(ids)] = torch.tensor(ids)
            weights[row, 1:prompt], weights[row, prompt : len(ids)] = 0.1, 1.0
        tokens, weights = tokens.to(device, non_blocking=True), weights.to(device, non_blocking=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = self.model(tokens[:, :-1])
        each = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
        loss = (each * weights[:, 1:].flatten()).sum() / weights[:, 1:].sum()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.steps += 1
        self.tokens += int((weights > 0).sum()) if device.type == "cpu" else len(chosen) * length
        if self.steps % 20 == 1:
            self.losses.append(float(loss.detach()))

    def _next(self) -> list[int]:
        """The next batch: sequences of about the same length."""
        if not self._queue:
            order = sorted(range(len(self.sequences)), key=lambda n: len(self.sequences[n][0]) + self.rng.random() * 50)
            batch: list[int] = []
            for number in order:
                if batch and (len(batch) + 1) * len(self.sequences[number][0]) > self.batch_tokens:
                    self._queue.append(batch)
                    batch = []
                batch.append(number)
            self._queue.append(batch)
            self.rng.shuffle(self._queue)
        return self._queue.pop()


@dataclass(frozen=True)
class EvalTask:
    """A task to answer: the sample as it is judged, and its text."""

    sample: Sample
    text: str


def eval_tasks(samples: Sequence[Sample], count: int, longest: int) -> list[EvalTask]:
    """Tasks of held-out families with small inputs, one graph each, spread evenly over all that there are."""
    found = []
    for one in sorted(samples, key=lambda s: s.sample):
        first = one.variants[0].graph_hash
        mine = replace(one, variants=tuple(v for v in one.variants if v.graph_hash == first))
        chosen, text = small(mine), describe_graphs(replace(mine, variants=mine.variants[:3]))
        if chosen is not None and len(text) <= longest:
            found.append(EvalTask(chosen, text))
    return [found[n * len(found) // count] for n in range(count)] if len(found) > count else found


def main(given: Sequence[str] | None = None) -> int:
    """Run the experiment."""
    arguments = _arguments(given)
    random.seed(arguments.seed)
    torch.manual_seed(arguments.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    device, began = torch.device(arguments.device), time.monotonic()
    held_samples = held_out_samples([arguments.held_out])
    held = HeldOut.of(held_samples)
    rows = [row for path in arguments.data for row in pq.read_table(path).to_pylist()]
    rows = [r for r in rows if r["family_hash"] not in held.families and tuple(r["op_sequence"]) not in held.sequences]
    train = [r for r in rows if r["split"] == "train"]
    text = Text.trained([t for r in train for t in (r["task"], r["answer"])], arguments.vocabulary)
    tasks = eval_tasks(held_samples, arguments.families, 2500)
    width, layers, heads = (64, 2, 2) if arguments.tiny else (arguments.width, arguments.layers, arguments.width // 64)
    model = Decoder(Shape(text.tokenizer.get_vocab_size(), width, layers, heads, arguments.context)).to(device)
    pairs = [text.pair(r["task"], r["answer"]) for r in train]
    fitting = [pair for pair in pairs if len(pair[0]) <= arguments.context]
    if not fitting:
        raise PassNetError(f"no demonstration fits into {arguments.context} tokens: raise --context")
    training = Training(model, fitting, arguments.batch_tokens, arguments.rate, random.Random(arguments.seed))
    record: dict[str, Any] = {
        "seed": arguments.seed,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "libraries": libraries(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "demonstrations": {"train": len(train), "too long": len(pairs) - len(fitting),
                           "families": len({r["family_hash"] for r in train}),
                           "real": sum(r["kind"] == "real" for r in train)},
        "tasks": len(tasks),
        "prepare_seconds": time.monotonic() - began,
        "points": [],
    }  # fmt: skip
    print(json.dumps(record), flush=True)
    answers: list[dict] = []
    with Judge(arguments.workers) as judge, ThreadPoolExecutor(1) as thread:
        run = _Experiment(arguments, model, text, tasks, judge, thread, answers)
        waiting = [("before", 0.0, run.answer("before", 0.0))]
        share = arguments.train_seconds / arguments.points
        for point in range(arguments.points):
            training.run(share, (point / arguments.points, (point + 1) / arguments.points), arguments.steps)
            name = f"{(point + 1) * share:.0f} s of training"
            waiting.append((name, training.losses[-1], run.answer(name, 0.0)))
        record |= {"train_seconds": arguments.train_seconds, "steps": training.steps, "tokens": training.tokens}
        several = [run.answer("sampled after training", 0.8) for _ in range(arguments.samples)]
        own = run.expert_iteration(held, training)
        waiting.append(("after expert iteration", training.losses[-1], run.answer("after expert iteration", 0.0)))
        after = [run.answer("sampled after expert iteration", 0.8) for _ in range(arguments.samples)]
        for name, loss, verdicts in waiting:
            record["points"].append({"point": name, "loss": loss, **shares(verdicts.result())})
            print(json.dumps(record["points"][-1]), flush=True)
        record["expert_iteration"] = own
        for name, found in (("after training", several), ("after expert iteration", after)):
            record[f"pass_at_k {name}"] = _pass_at([one.result() for one in found])
    record["memory"] = _memorised(train, tasks, answers)
    if device.type == "cuda" and arguments.bench_seconds:
        del training, model
        run.model = None
        torch.cuda.empty_cache()
        record["timed"] = _timed(tasks, answers, arguments.bench_seconds)
    record["seconds"] = time.monotonic() - began
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "record.json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    pd.DataFrame(answers).to_parquet(arguments.out / "answers.parquet", index=False)
    print(json.dumps({k: v for k, v in record.items() if k != "points"}, indent=1))
    return 0


@dataclass
class _Experiment:
    arguments: argparse.Namespace
    model: Decoder | None
    text: Text
    tasks: list[EvalTask]
    judge: Judge
    thread: ThreadPoolExecutor
    answers: list[dict]

    def write(self, texts: Sequence[str], temperature: float) -> list[str]:
        """What the model answers to these tasks."""
        prompts = [self.text.prompt(t)[-self.arguments.context // 2 :] for t in texts]
        found: list[str] = []
        for start in range(0, len(prompts), self.arguments.batch):
            part = prompts[start : start + self.arguments.batch]
            written = sample(self.model, part, self.text.end, temperature, self.arguments.longest)
            found += [self.text.tokenizer.decode(ids) for ids in written]
        return found

    def answer(self, point: str, temperature: float) -> "Future[list[Verdict]]":
        """Answer all tasks now; they are judged in the background."""
        written = self.write([t.text for t in self.tasks], temperature)
        pairs = [(t.sample, a) for t, a in zip(self.tasks, written, strict=True)]
        return self.thread.submit(self._judged, point, pairs)

    def _judged(self, point: str, pairs: list[tuple[Sample, str]]) -> list[Verdict]:
        verdicts = self.judge.judge(pairs, self.arguments.variants)
        for (_, answer), verdict in zip(pairs, verdicts, strict=True):
            self.answers.append({"point": point, "answer": answer, **verdict.to_row()})
        return verdicts

    def expert_iteration(self, held: HeldOut, training: Training) -> dict[str, Any]:
        """One round: new tasks, own answers, those that are right learned in addition."""
        new = (s for s in composed(self.arguments.seed + 77_777) if not held.why_not(s))
        chosen = [EvalTask(s, describe_graphs(s)) for s in islice(new, self.arguments.own_tasks)]
        written = [a for _ in range(2) for a in self.write([t.text for t in chosen], 0.8)]
        pairs = list(zip([t.sample for t in (*chosen, *chosen)], written, strict=True))
        verdicts = self.thread.submit(self.judge.judge, pairs, 1).result()
        kept = {(p[0].sample, a) for p, a, v in zip(pairs, written, verdicts, strict=True) if v.right}
        by_name = {t.sample.sample: t.text for t in chosen}
        own = [self.text.pair(by_name[name], answer) for name, answer in sorted(kept)]
        training.sequences += [pair for pair in own if len(pair[0]) <= self.arguments.context] * 2
        training._queue.clear()
        training.run(self.arguments.train_seconds / 6, (0.9, 1.0), self.arguments.steps)
        return {"tasks": len(chosen), "answers": len(written), "kept": len(kept), **shares(verdicts)}


def _pass_at(attempts: Sequence[Sequence[Verdict]]) -> dict[str, float]:
    """pass@1 and pass@k over tasks, of k attempts at each."""
    count = len(attempts)
    right = [sum(v.right for v in of_task) for of_task in zip(*attempts, strict=True)]
    return {f"pass@{k}": sum(pass_at_k(count, n, k) for n in right) / max(1, len(right)) for k in sorted({1, count})}


def _memorised(train: Sequence[dict], tasks: Sequence[EvalTask], answers: Sequence[dict]) -> dict[str, Any]:
    """How near the tasks are to training, and what became of near and far ones after training."""
    known = {tuple(r["op_sequence"]) for r in train}
    texts = {r["answer"].strip() for r in train}
    near = {}
    for task in tasks:
        ops = tuple(task.sample.variants[0].graph.op_sequence)
        near[task.sample.sample] = max(SequenceMatcher(None, ops, one, False).ratio() for one in known)
    last = [a for a in answers if a["point"] == "after expert iteration"]
    groups: dict[str, list[bool]] = {}
    for one in last:
        ratio = near[one["sample"]]
        groups.setdefault("nearest at least 0.8" if ratio >= 0.8 else "farther", []).append(one["right"])
    return {
        "similarity_of_op_sequences": near,
        "right_by_nearness": {name: [sum(found), len(found)] for name, found in groups.items()},
        "answers_that_are_training_answers": sum(a["answer"].strip() in texts for a in last),
    }


def _timed(tasks: Sequence[EvalTask], answers: Sequence[dict], seconds: float) -> dict[str, Any]:
    """Speedups on the GPU of the last greedy answers that were right, and of `readable` on the same samples."""
    by_name = {t.sample.sample: t.sample for t in tasks}
    right = {
        a["sample"]: files_of(a["answer"]) for a in answers if a["point"] == "after expert iteration" and a["right"]
    }
    author, found = Readable(margin=-100.0), {}
    end = time.monotonic() + seconds
    with Rewards(["cuda:0"], settings=TIMED) as rewards:
        for name, one in by_name.items():
            if time.monotonic() > end:
                break
            reference = author.write(one).files
            found[name] = {
                "model": _plain(rewards(one, right[name])) if name in right else None,
                "readable": _plain(rewards(one, reference)) if reference else None,
            }
    return found


def _plain(reward: Reward) -> dict[str, Any]:
    return {"value": reward.value, "speedup": reward.speedup, "status": reward.status, "reason": reward.reason[:200]}


def reference_answer(one: Sample) -> str:
    """What `readable` answers to a task; empty where it declines."""
    written = Readable(margin=-100.0).write(one)
    return answer_of(written.files) if written.files else ""


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data", type=Path, nargs="+", required=True)
    add("--held-out", type=Path, required=True)
    add("--out", type=Path, required=True)
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--seed", type=int, default=0)
    add("--train-seconds", type=float, default=110.0)
    add("--points", type=int, default=5, help="how often it answers the tasks while it is trained")
    add("--steps", type=int, default=None, help="steps of training between two points, at most")
    add("--families", type=int, default=48, help="held-out tasks")
    add("--variants", type=int, default=2, help="variants of a task on which an answer is judged")
    add("--samples", type=int, default=8, help="answers to each task for pass@k")
    add("--own-tasks", type=int, default=96, help="tasks of the round of expert iteration")
    add("--workers", type=int, default=12, help="processes that judge")
    add("--bench-seconds", type=float, default=40.0)
    add("--width", type=int, default=640)
    add("--layers", type=int, default=12)
    add("--context", type=int, default=2048)
    add("--longest", type=int, default=1300, help="tokens of an answer")
    add("--vocabulary", type=int, default=4096)
    add("--batch", type=int, default=128, help="answers that are written at a time")
    add("--batch-tokens", type=int, default=48_000)
    add("--rate", type=float, default=1e-3)
    add("--tiny", action="store_true")
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.exit(main())
