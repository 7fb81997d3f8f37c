"""`passnet quickstart`: build the built-in catalogue, evaluate authors on a few samples, and say what is true of it."""

import math
from pathlib import Path
from typing import Any

import torch

from flows.build_dataset import build_dataset
from flows.evaluate.devices import resolve_devices
from flows.steps import say
from storage.errors import PassNetError
from storage.schema import CATEGORIES
from storage.versions.store import Store
from storage.versions.version import Version

FEWEST_ELEMENTS = 256
"""Elements that a sample's largest tensor has at least, to be worth a look."""


def run_quickstart(data: Path, workers: int | None, device: str, author: str, limit: int) -> dict[str, Any]:
    """The whole job as a JSON-ready document: `build`, `evaluate`, and `record` of a GPU where none ran here.

    On a GPU the samples are the first `limit` as `passnet evaluate` takes them; without one the smallest, since
    Triton's interpreter takes minutes for what a GPU does in microseconds. Raises PassNetError as the two flows do.
    """
    resolve_devices(device)  # a GPU that is not there is said now, not after the build
    built = build_dataset.fn(catalog="quickstart", workers=workers, data=str(data))
    only = None
    if device.startswith("cpu") or not torch.cuda.is_available():
        only = cheapest_samples(Store(data).open(built["version"]), limit)
        say(f"no GPU: the smallest evaluation samples are taken, {', '.join(only)}")
    from flows.evaluate_model import evaluate_model  # seconds, in which the first models would wait
    from flows.report.gpu_record import gpu_record

    evaluated = evaluate_model.fn(author=author, data=str(data), limit=limit, device=device, only=only)
    record = None if evaluated["times_meaningful"] else gpu_record()
    return {"build": built, "evaluate": evaluated, "record": record}


def cheapest_samples(version: Version, limit: int, split: str = "eval") -> list[str]:
    """Ids of the samples that an interpreter runs fastest, categories taking turns.

    The work of a sample is elements times ops, over all of its variants. Samples without a tensor of numbers, and those
    whose largest has fewer than `FEWEST_ELEMENTS` elements, come last. Raises PassNetError where the split has no
    samples.
    """
    rows = version.table("samples", split, columns=["sample", "category", "variants", "op_sequence"]).to_pylist()
    if not rows:
        raise PassNetError(f"{version.name} has no samples in split {split}: build more models")
    wanted = {hash_ for row in rows for hash_ in row["variants"]}
    elements = {
        (category, row["variant_hash"]): max(
            (math.prod(t["shape"] or ()) for t in (*row["inputs"], *row["outputs"]) if "float" in t["dtype"]), default=0
        )
        for category in CATEGORIES
        for batch in version.batches(category, columns=["variant_hash", "inputs", "outputs"])
        for row in batch.to_pylist()
        if row["variant_hash"] in wanted
    }

    def work(row: dict) -> tuple[bool, int, str]:
        sizes = [elements[row["category"], hash_] for hash_ in row["variants"]]
        return max(sizes) < FEWEST_ELEMENTS, sum(sizes) * len(row["op_sequence"]), row["sample"]

    queues = [sorted((r for r in rows if r["category"] == c), key=work) for c in ("fusible", "typical", "sole_op")]
    turns = [queue[turn]["sample"] for turn in range(limit) for queue in queues if turn < len(queue)]
    return turns[:limit]
