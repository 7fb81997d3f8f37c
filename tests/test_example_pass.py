"""The pass that the README shows: it is the one in docs/example_pass, and it does what the README says."""

import json
from dataclasses import replace
from pathlib import Path

from passbench.bench import Bench
from passbench.policy.check import check_dir
from passbench.settings import Settings
from storage.records import Sample, Variant

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "docs" / "example_pass"
SAMPLE = "fusible-db97e1912492"
QUICKSTART = ROOT / "tests" / "agent" / "distill" / "quickstart.jsonl"


def in_dtype(one: Variant, dtype: str) -> Variant:
    inputs = tuple(replace(i, dtype=dtype) for i in one.inputs)
    return one.with_changes(inputs=inputs, outputs=tuple(replace(o, dtype=dtype) for o in one.outputs))


def test_the_readme_shows_the_example_as_it_is():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert (EXAMPLE / "mean_of_two.py").read_text(encoding="utf-8") in readme
    assert f"passnet bench {SAMPLE} --passes docs/example_pass" in readme


def test_the_example_is_allowed_and_right():
    rows = [json.loads(line) for line in QUICKSTART.read_text().splitlines()]
    one = next(Variant.from_row(row) for row in rows if f"fusible-{row['family_hash'][:12]}" == SAMPLE)
    variants = tuple(in_dtype(one, dtype) for dtype in ("float32", "float16", "bfloat16"))
    assert check_dir(EXAMPLE) == []
    with Bench("cpu", Settings(draws=2, calls=2, warmup=0, seed=5)) as bench:
        results = [*bench.run(Sample(SAMPLE, one.family_hash, "fusible", "eval", variants), "pass", EXAMPLE)]
    assert [(r.status, r.reason, r.matches) for r in results] == [("ok", "", 1)] * 3
    assert all(r.t_min <= -5 for r in results)
