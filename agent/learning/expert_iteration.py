"""A round of expert iteration: a model answers training tasks, and what PassBench finds right is what it learns next.

    python -m agent.learning.expert_iteration --model tuned/final --version VERSION_DIR --out round_1 [--samples 4]
    python -m agent.learning.sft --model tuned/final --data round_1 --out tuned_1

`--model` is a Hub model id or a directory, `--version` a version whose training samples are asked; `--held-out` names
further versions whose evaluation samples nothing may be near to. Of the right answers to a task the one with the
highest reward is kept. `--out` becomes a dataset of demonstrations for `agent.learning.sft`.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from agent.learning.answers import answer_of, files_of
from agent.learning.dataset import write_dataset
from agent.learning.demonstrations import MESSAGE, PLAIN, conversation, message, split_of
from agent.learning.leaks import HeldOut
from agent.learning.rewards import Rewards
from agent.learning.trl_rewards import prompt_of
from agent.llm.task import describe_graphs
from storage.errors import PassNetError
from storage.records import Sample
from storage.versions.samples import load_samples
from storage.versions.version import Version

Answer = Callable[[Sequence[list[dict[str, str]]]], list[str]]
"""Answers to conversations, a text for each."""

_TEMPERATURE = 0.8
"""At which a language model answers."""
SCHEMA = pa.schema(
    [
        ("messages", pa.list_(MESSAGE)),
        ("prompt", pa.list_(MESSAGE)),
        ("completion", pa.list_(MESSAGE)),
        ("sample", pa.string()),
        ("family_hash", pa.string()),
        ("reward", pa.float64()),
        ("speedup", pa.float64()),  # null where no GPU measured
    ]
)


@dataclass(frozen=True)
class Round:
    """What came of a round: rows of `SCHEMA` by split, how many tasks were asked, and how many answers were right."""

    rows: dict[str, list[dict[str, Any]]]
    tasks: int
    answers: int
    right: int


def round_of(samples: Sequence[Sample], held_out: HeldOut, answer: Answer, rewards: Rewards, tries: int) -> Round:
    """Have each sample answered `tries` times, and keep the best right answer to each.

    A sample that is too near to an evaluation sample is not asked.
    """
    asked = [sample for sample in samples if not held_out.why_not(sample)]
    jobs = [sample for sample in asked for _ in range(tries)]
    answers = [files_of(text) for text in answer([prompt_of(sample) for sample in jobs])]
    earned = rewards.score(list(zip(jobs, answers, strict=True)))
    best: dict[str, int] = {}
    for number, reward in enumerate(earned):
        name = jobs[number].sample
        if reward.value > 0 and (name not in best or reward.value > earned[best[name]].value):
            best[name] = number
    rows: dict[str, list[dict[str, Any]]] = {"train": [], "validation": []}
    for number in best.values():
        sample, files, task = jobs[number], answers[number], describe_graphs(jobs[number])
        rows[split_of(sample.family_hash)].append(
            {
                "messages": conversation(task, files, ""),
                "prompt": [message("system", prompt_of(sample)[0]["content"]), message("user", PLAIN + task)],
                "completion": [message("assistant", answer_of(files))],
                "sample": sample.sample,
                "family_hash": sample.family_hash,
                "reward": earned[number].value,
                "speedup": earned[number].speedup,
            }
        )
    return Round(rows, len(asked), len(jobs), sum(reward.value > 0 for reward in earned))


class LanguageModel:
    """A causal language model of transformers that answers conversations, at most `longest` tokens each."""

    def __init__(self, name: str, device: str, longest: int = 4096, batch: int = 8) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        dtype = torch.bfloat16 if device.startswith("cuda") else torch.float32
        self.tokenizer = AutoTokenizer.from_pretrained(name, padding_side="left")
        self.model = AutoModelForCausalLM.from_pretrained(name, dtype=dtype).to(device).eval()
        self.longest, self.batch = longest, batch
        if self.tokenizer.pad_token is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token

    def __call__(self, conversations: Sequence[list[dict[str, str]]]) -> list[str]:
        """A text for each conversation."""
        found: list[str] = []
        for start in range(0, len(conversations), self.batch):
            part = list(conversations[start : start + self.batch])
            given = self.tokenizer.apply_chat_template(
                part, add_generation_prompt=True, return_tensors="pt", padding=True, return_dict=True
            ).to(self.model.device)
            with torch.no_grad():
                made = self.model.generate(
                    input_ids=given["input_ids"],
                    attention_mask=given["attention_mask"],
                    max_new_tokens=self.longest,
                    do_sample=True,
                    temperature=_TEMPERATURE,
                    pad_token_id=self.tokenizer.pad_token_id,
                )
            written = made[:, given["input_ids"].shape[1] :]
            found += self.tokenizer.batch_decode(written, skip_special_tokens=True)
        return found


def main(given: Sequence[str] | None = None) -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m agent.learning.expert_iteration",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", required=True, help="a Hub model id or a directory")
    add("--version", type=Path, required=True)
    add("--held-out", type=Path, action="append", default=[])
    add("--out", type=Path, required=True)
    add("--samples", type=int, default=4, help="answers to each task")
    add("--tasks", type=int, default=None, help="tasks at most")
    add("--longest", type=int, default=4096, help="tokens of an answer")
    add("--devices", nargs="*", default=None, help="where answers are judged; by default every GPU, or the CPU")
    arguments = parser.parse_args(given)
    try:
        versions = [Version.open(place) for place in (arguments.version, *arguments.held_out)]
        held = HeldOut.of(sample for version in versions for sample in load_samples(version, "eval"))
        samples = load_samples(versions[0], "train")[: arguments.tasks]
        model = LanguageModel(arguments.model, "cuda" if torch.cuda.is_available() else "cpu", arguments.longest)
        with Rewards(arguments.devices) as rewards:
            done = round_of(samples, held, model, rewards, arguments.samples)
        text = (
            f"Answers of {arguments.model} to {done.tasks} training tasks of {versions[0].name}, {arguments.samples} "
            f"to each: {done.right} of {done.answers} were right at t = -5, and the best one to a task is kept.\n"
        )
        if not any(done.rows.values()):
            raise PassNetError(f"none of {done.answers} answers was right: fine-tune on demonstrations first")
        write_dataset(arguments.out, "A model's own answers that are right", text, done.rows, SCHEMA)
    except PassNetError as error:
        print(f"expert_iteration: {error}", file=sys.stderr)
        return 1
    print(text.strip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
