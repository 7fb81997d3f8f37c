"""`passnet samples`, `passnet show`, and what `passnet bench` says of samples: found, shown, diagnosed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from flows.cli.quickstart import cheapest_samples
from flows.cli.samples.bench import bench_sample, some_variants
from flows.cli.samples.texts import bench_text, samples_text, show_text
from storage.errors import PassNetError
from tests.flows.commands import error_line, passnet_here
from tests.support.scored import samples, scored

PASSES = Path(__file__).resolve().parents[2] / "support" / "passes"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return scored(tmp_path_factory.mktemp("samples") / "data")


def document(*arguments: object) -> dict:
    done = passnet_here(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_samples_are_found_by_op_category_and_split(store):
    every = document("samples", "--data", store.root)
    assert every["found"] == 3 and {s["sample"] for s in every["samples"]} == {s.sample for s in samples()}
    (found,) = document("samples", "--data", store.root, "--op", "softmax")["samples"]
    assert found["category"] == "sole_op" and found["variants"] == 5
    fusible = document("samples", "--data", store.root, "--category", "fusible", "--split", "eval", "--limit", 1)
    assert fusible["found"] == 2 and len(fusible["samples"]) == 1
    assert "1 more:" in passnet_here("samples", "--data", store.root, "--category", "fusible", "--limit", 1).stdout


def test_a_line_of_samples_has_few_ops_by_short_names():
    ops = ["torch.ops.aten.view.default", "torch.ops.aten.add.Tensor", "torch.nn.functional.relu", ".sum"]
    shown = {"sample": "typical-0c80954e1e9d", "split": "eval", "variants": 2}
    done = {"version": "v1", "samples": [shown | {"ops": ops}, shown | {"ops": ops * 4}], "found": 2, "op": None}
    text = samples_text(done)
    assert "aten.view aten.add.Tensor relu .sum" in text and "and 6 more" in text and len(text.splitlines()) < 10
    text = samples_text(done | {"samples": [shown | {"ops": ops * 4 + [".softmax"]}], "op": "softmax"})
    assert "16 others, then .softmax" in text, "the op that was looked for stands in the line"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--op", "nosuch"], "the most frequent are"),
        (["--split", "train"], "no samples in split train"),
        (["--category", "typical"], "no samples in category typical"),
    ],
)
def test_where_no_sample_fits_it_is_one_line(store, options, said):
    assert said in error_line(passnet_here("samples", "--data", store.root, *options))


def test_a_sample_is_shown_with_source_inputs_origin_and_results(store):
    sample = samples()[0]
    shown = document("show", sample.sample[:-4], "--data", store.root)
    assert shown["sample"] == sample.sample and "torch.relu" in shown["code"]
    assert [v["id"] for v in shown["variants"]] == [v.variant_hash for v in sample.variants]
    assert shown["sources"] == [{"model": "timm:resnet18", "start": 0, "end": 2}]
    assert {r["author"] for r in shown["results"]} == {"eager", "inductor", "distill", "llm"}
    another = next(r for r in shown["results"] if r["author"] == "eager") | {"run": "eager-another"}
    assert "eager (eager-an)" in show_text(shown | {"results": [*shown["results"], another]})
    text = passnet_here("show", sample.sample, "--data", store.root).stdout
    assert all(said in text for said in ("class GraphModule", "float16", "timm:resnet18, ops 0 to 2", "distill"))
    before = passnet_here("show", sample.sample, "--data", store.root, "--version", "v1").stdout
    assert "No results yet" in before


def test_a_sample_that_is_not_there_is_told_before_torch_is_imported(store):
    for command in ("show", "bench"):
        assert "passnet samples" in error_line(passnet_here(command, "nosuch", "--data", store.root))
    script = "import sys; from flows.cli.samples.bench_checks import check_bench; from pathlib import Path\n"
    script += f"try: check_bench('nosuch', Path({str(store.root)!r}), None, None, None)\n"
    script += "except Exception as error: print('torch' in sys.modules, 'prefect' in sys.modules, error)"
    done = subprocess.run([sys.executable, "-c", script], cwd=PASSES.parents[2], capture_output=True, text=True)
    assert done.stdout.startswith("False False no sample of v2 fits 'nosuch'"), done


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "tpu"], "'tpu' is not a device"),
        (["--compiler", "gcc"], "compiler 'gcc' is unknown"),
        (["--passes", "nowhere"], "nowhere is no directory"),
        (["--version", "v9"], "it has v1, v2"),
        (["--dtype", "float8", "--device", "cpu"], "it has float16, float32"),
    ],
)
def test_bad_options_of_bench_are_one_line(store, arguments, said):
    assert said in error_line(passnet_here("bench", samples()[0].sample, "--data", store.root, *arguments))


def test_some_variants_are_taken(store):
    sample = samples()[2]
    assert some_variants(sample, None, 2).variants == sample.variants[:2]
    assert some_variants(samples()[0], "float16", 9).variants == samples()[0].variants[1:]


def test_where_nothing_matches_the_status_is_3_and_equal_reasons_stand_below_once(store):
    done = passnet_here(
        "bench", samples()[0].sample, "--data", store.root, "--passes", PASSES / "no_match", "--device", "cpu"
    )
    assert done.returncode == 3, done.stderr
    assert done.stdout.count("no match; nearest") == 1 and "[1] 2 x pass" in done.stdout
    assert "…" not in done.stdout.split("[1] 2 x")[1] and "AS" not in done.stdout


def test_a_table_of_a_cpu_has_no_speeds_and_one_of_a_gpu_has(store):
    done = bench_sample(samples()[0].sample, None, "eager", store.root, None, "cpu", "passnet", limit=1)
    assert done["AS"] == {"e2e": None, "device": None}, "no score is made of interpreter times"
    assert done["matched"] and len(done["variants"]) == 1 and not done["times_meaningful"]
    assert "right at t = -5: 1 of 1\n" in bench_text(done)
    assert "e2e" not in bench_text(done) and "No GPU ran" in bench_text(done)
    assert "e2e" in bench_text(done | {"times_meaningful": True})


def test_the_cheapest_samples_come_first_and_categories_take_turns(store):
    names = {s.sample: s for s in samples()}
    chosen = [names[name] for name in cheapest_samples(store.latest(), 3)]
    assert [s.category for s in chosen] == ["fusible", "sole_op", "fusible"]
    assert len(cheapest_samples(store.latest(), 1)) == 1
    with pytest.raises(PassNetError, match="no samples in split train"):
        cheapest_samples(store.latest(), 1, "train")
