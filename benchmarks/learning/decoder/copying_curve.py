"""How soon a small decoder copies: tasks and their patterns alone, on one core of a CPU, within minutes.

    python -m benchmarks.learning.decoder.copying_curve --demonstrations FILE --out FILE [--reach 3]

Learns from demonstrations whose task and pattern are short, with other numbers in each epoch, and as many examples of
copying as `--copies` says. The file has, along training, what it predicts of demonstrations kept for validation, and of
drawn examples: the loss of a token, the share of tokens that are most likely, and of patterns that are whole.
`--reach 0` is a decoder whose layers attend with their own position alone.
"""

import argparse
import random
import re
import time
from pathlib import Path

import pyarrow.parquet as pq
import torch

from benchmarks.learning.decoder.code_tokens import Text
from benchmarks.learning.decoder.copying import CopyTasks
from benchmarks.learning.decoder.renumbered import renumbered
from benchmarks.learning.decoder.small_decoder import Decoder, Shape
from benchmarks.learning.decoder.training import Pair, Training
from passbench.result import libraries
from storage.disk import write_json

_PATTERN = re.compile(r"def pattern\(.*?\n    return .*?\n", re.S)
_HEAD = 32
"""The width of an attention head."""


def main() -> None:
    """Train, and write the file after each point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demonstrations", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--reach", type=int, default=3)
    parser.add_argument("--copies", type=float, default=0.6)
    parser.add_argument("--points", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100, help="of a point")
    parser.add_argument("--longest", type=int, default=200, help="tokens of a task and its pattern, at most")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    rng = random.Random(arguments.seed)
    rows = pq.read_table(arguments.demonstrations, columns=["split", "task", "answer"]).to_pylist()
    train = [row for row in rows if row["split"] == "train"]
    text = Text.trained([t for row in train for t in (row["task"], row["answer"])], 1024)
    drawn = CopyTasks(train, rng)

    def fitting(texts: list[tuple[str, str]]) -> list[Pair]:
        cut = [(task, found[0]) for task, answer in texts if (found := _PATTERN.search(answer))]
        return [(ids[:-1], prompt) for ids, prompt in text.pairs(cut) if len(ids) <= arguments.longest]

    def renewed() -> list[Pair]:
        own = fitting([renumbered(row["task"], row["answer"], rng) for row in train])
        count = round(len(own) * arguments.copies / (1.0 - arguments.copies))
        return own + fitting([(task, pattern) for task, _, pattern in (drawn() for _ in range(count))])

    kept = fitting([(row["task"], row["answer"]) for row in rows if row["split"] == "validation"])
    others, first = fitting([(task, pattern) for task, _, pattern in (drawn() for _ in range(100))]), renewed()
    heads = arguments.width // _HEAD
    shape = Shape(
        text.tokenizer.get_vocab_size(), arguments.width, arguments.layers, heads, arguments.longest,
        reach=arguments.reach,
    )  # fmt: skip
    model = Decoder(shape)
    training, began = Training(model, first, 1500, 9e-3, rng, renewed), time.monotonic()
    about = {
        "arguments": {name: str(value) for name, value in vars(arguments).items() if name != "out"},
        "libraries": libraries(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "sequences": len(first),
        "kept": len(kept),
        "drawn": len(others),
    }
    points = []
    for point in range(arguments.points):
        training.run(1e9, (point / arguments.points, (point + 1) / arguments.points), arguments.steps)
        found = {"kept": training.on(kept), "drawn": training.on(others)}
        points.append({"steps": training.steps, "seconds": round(time.monotonic() - began), **found})
        print(points[-1], flush=True)
        write_json(arguments.out, about | {"points": points})


if __name__ == "__main__":
    main()
