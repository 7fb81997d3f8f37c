"""A small data directory with results: v1 has subgraphs and samples, v2 also what four authors made of them."""

from pathlib import Path

import pyarrow as pa
import torch

from dedup.hashes import identify
from passbench.score import score_rows
from storage.records import Input, Output, Sample, Source, Variant
from storage.schema import CONFIGS
from storage.versions.store import Store
from tests.passbench.samples import spec, variant

SPEEDUPS = {"eager": 1.0, "inductor": 0.6, "distill": 1.5, "llm": 1.2}
"""Author → end-to-end speedup of its first variant; each further one is a tenth faster."""

HOSTILE = '<script src="https://example.com/x.js"></script> $\\frac{1}{0}$ & "quoted"'
"""A reason that a page must show as text."""


def add_relu(x, y):
    return (torch.relu(x + y),)


def scale_shift(x, weight):
    return (torch.sigmoid(x * weight) * 2.0 + 1.0,)


def softmax(x):
    return (torch.softmax(x, -1),)


def samples() -> list[Sample]:
    """Two fusible samples in float32 and float16, one of a single op with five shapes."""
    kinds = [
        ("fusible", add_relu, [[spec("x", 4, 8, dtype=d), spec("y", 4, 8, dtype=d)] for d in ("float32", "float16")]),
        (
            "fusible",
            scale_shift,
            [[spec("x", 2, 16, dtype=d), spec("w", 16, dtype=d, role="parameter")] for d in ("float32", "float16")],
        ),
        ("sole_op", softmax, [[spec("x", n, 8)] for n in (1, 2, 4, 8, 16)]),
    ]
    return [_sample(category, function, inputs) for category, function, inputs in kinds]


def _sample(category: str, function, inputs: list[list[Input]]) -> Sample:
    variants = []
    for given in inputs:
        out = Output(given[0].dtype, given[0].shape, given[0].stride)
        made = variant(function, *given).with_changes(
            outputs=(out,), kernels=1, sources=(Source("timm:resnet18", 0, 2),)
        )
        variants.append(identify(made.with_changes(category=category)))
    family = variants[0].family_hash
    return Sample(f"{category}-{family[:12]}", family, category, "eval", tuple(variants), 1.0, "eval: for tests")


def results(found: list[Sample]) -> list[dict]:
    """Rows of the results table: one author's failures among them."""
    rows = []
    for author, first in SPEEDUPS.items():
        for sample in found:
            rows += [_result(author, sample, v, first * (1 + n / 10)) for n, v in enumerate(sample.variants)]
    rows[-1] |= {"status": "wrong", "error_code": 1, "t_min": None, "reason": HOSTILE}
    return rows


def _result(author: str, sample: Sample, made: Variant, speedup: float) -> dict:
    return {
        "run": f"{author}-0123456789", "author": author, "model": "mini" if author == "llm" else "", "attempt": 1,
        "sample": sample.sample, "category": sample.category, "variant_hash": made.variant_hash, "status": "ok",
        "reason": "", "error_code": None, "t_min": -6, "speedup_e2e": speedup, "speedup_device": 2 * speedup,
        "times_meaningful": True, "device": "GPU", "protocol": "passnet", "compiler": author, "seconds": 1.0,
    }  # fmt: skip


def models() -> list[dict]:
    """Rows of the models table: one traced, three that failed for two reasons."""
    traced = {"model": "timm:resnet18", "source": "timm", "status": "traced", "graphs": 1, "ops": 60, "seconds": 3.0}
    failed = {"source": "timm", "status": "failed", "seconds": 1.0}
    return [
        traced,
        *({**failed, "model": f"timm:slow{n}", "error_category": "timeout", "message": "60 s"} for n in (1, 2)),
        {**failed, "model": "timm:odd", "error_category": "inputs", "message": "no inputs for\nthis one"},
    ]


def scored(root: Path) -> Store:
    """Publish both versions below `root`."""
    store, found = Store(root), samples()
    rows: dict[tuple[str, str], list[dict]] = {("models", "all"): models()}
    for sample in found:
        rows.setdefault((sample.category, "eval"), []).extend(v.to_row() for v in sample.variants)
        rows.setdefault(("samples", "eval"), []).append(sample.to_row())
    rows |= {(config, "train"): [] for config in ("fusible", "sole_op", "samples")}
    first, _ = store.publish(_tables(rows), kind="build", parent=None, parameters={}, summary={})
    measured = results(found)
    scores = [
        line
        for author in SPEEDUPS
        for clock in ("e2e", "device")
        for line in score_rows(
            [r for r in measured if r["author"] == author], run=f"{author}-0123456789", author=author, clock=clock
        )
    ]
    tables = _tables({("results", "all"): measured, ("scores", "all"): scores})
    store.publish(tables, kind="evaluate", parent=first, keep=first.configs(), parameters={}, summary={})
    return store


def _tables(rows: dict[tuple[str, str], list[dict]]) -> dict[tuple[str, str], pa.Table]:
    return {key: pa.Table.from_pylist(found, CONFIGS[key[0]]) for key, found in rows.items()}
