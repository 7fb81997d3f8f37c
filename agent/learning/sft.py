"""Fine-tune a model on demonstrations with TRL's SFTTrainer: `pip install -e '.[learning]'` in PassNet's repository.

    python -m agent.learning.sft --model ORG/NAME --data demonstrations --out tuned [--lora 16] [--form tools]

Goes on from the last checkpoint in --out where there is one. --data is what `passnet demonstrations` wrote. Then serve
the model and evaluate it as any other: `passnet evaluate --author llm --model … --base-url …`.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.learning.dataset import read_dataset
from storage.errors import PassNetError, installed_by


def example_of(row: Mapping[str, Any], form: str) -> dict[str, Any]:
    """A row of demonstrations as TRL takes it: `prompt` and `completion`, or `messages` with tool calls."""
    if form == "plain":
        return {name: [_plain(message) for message in row[name]] for name in ("prompt", "completion")}
    return {"messages": [_with_calls(message) for message in row["messages"]]}


def _plain(message: Mapping[str, Any]) -> dict[str, str]:
    return {"role": message["role"], "content": message["content"]}


def _with_calls(message: Mapping[str, Any]) -> dict[str, Any]:
    calls = [
        {
            "type": "function",
            "function": {"name": c["function"]["name"], "arguments": json.loads(c["function"]["arguments"])},
        }
        for c in message["tool_calls"] or ()
    ]
    return _plain(message) | ({"tool_calls": calls} if calls else {})


def train(arguments: argparse.Namespace) -> Path:
    """Fine-tune; returns where the model is. Raises PassNetError without TRL or without data."""
    loaded = read_dataset(arguments.data)
    try:
        from datasets import Dataset
        from peft import LoraConfig
        from trl import SFTConfig, SFTTrainer
    except ImportError as error:
        raise PassNetError(f"fine-tuning needs trl and peft ({error}): {installed_by('learning')}") from error
    sets = {split: Dataset.from_list([example_of(row, arguments.form) for row in loaded[split]]) for split in loaded}
    config = SFTConfig(
        output_dir=str(arguments.out),
        num_train_epochs=arguments.epochs,
        max_steps=arguments.steps,
        learning_rate=arguments.rate,
        per_device_train_batch_size=arguments.batch,
        gradient_accumulation_steps=arguments.accumulate,
        max_length=arguments.longest,
        save_steps=arguments.save_steps,
        save_total_limit=2,
        logging_steps=arguments.save_steps,
        seed=arguments.seed,
        report_to="none",
        use_cpu=arguments.cpu,
        bf16=not arguments.cpu,
    )
    lora = None
    if arguments.lora:
        lora = LoraConfig(
            r=arguments.lora, lora_alpha=2 * arguments.lora, target_modules="all-linear", task_type="CAUSAL_LM"
        )
    trainer = SFTTrainer(arguments.model, args=config, train_dataset=sets["train"], peft_config=lora)
    trainer.train(resume_from_checkpoint=any(arguments.out.glob("checkpoint-*")) or None)
    trainer.save_model(str(arguments.out / "final"))
    return arguments.out / "final"


def main(given: Sequence[str] | None = None) -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m agent.learning.sft", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", required=True, help="a Hub model id or a directory")
    add("--data", type=Path, required=True)
    add("--out", type=Path, required=True)
    add("--form", choices=("plain", "tools"), default="plain", help="answers as text, or as tool calls")
    add("--lora", type=int, default=0, metavar="R", help="train adapters of this rank instead of all weights")
    add("--epochs", type=float, default=2.0)
    add("--steps", type=int, default=-1, help="steps at most, instead of epochs")
    add("--rate", type=float, default=1e-5)
    add("--batch", type=int, default=1)
    add("--accumulate", type=int, default=16)
    add("--longest", type=int, default=8192, help="tokens of a conversation")
    add("--save-steps", type=int, default=50)
    add("--seed", type=int, default=0)
    add("--cpu", action="store_true", help="train on the CPU, in float32")
    arguments = parser.parse_args(given)
    try:
        print(train(arguments))
    except PassNetError as error:
        print(f"sft: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
