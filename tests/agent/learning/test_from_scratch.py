"""The experiment of `benchmarks.learning.from_scratch`, small: a decoder learns a rule, and the whole runs on a CPU."""

import ast
import json
import lzma
import random
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from agent.learning.answers import answer_of, files_of
from agent.learning.dataset import read_dataset
from agent.learning.demonstrations import split_of
from agent.learning.leaks import HeldOut
from agent.llm.task import describe_graphs
from agent.readable.author import Readable
from benchmarks.learning import (
    chat_dataset,
    curve_figure,
    from_scratch,
    make_demonstrations,
)
from benchmarks.learning.beside_training import new_tasks
from benchmarks.learning.checking import recheck, verdicts
from benchmarks.learning.checking.doubt import BACKWARD, FLOAT32, PRODUCTS, WIDER, checked_dtypes, doubt
from benchmarks.learning.checking.own_passes import OwnPasses
from benchmarks.learning.checking.verdicts import BY_INTERPRETER, BY_PASSBENCH, Checked
from benchmarks.learning.checking.ways import LATER, PASSBENCH, checking, one_of_each_layout
from benchmarks.learning.claims import Claims
from benchmarks.learning.composed import composed, few_rows
from benchmarks.learning.decoder import copying_curve
from benchmarks.learning.decoder.code_tokens import Text, shortened
from benchmarks.learning.decoder.copying import CopyTasks, repeats
from benchmarks.learning.decoder.renumbered import renumbered
from benchmarks.learning.decoder.replays import Begins, replay_of, with_replays
from benchmarks.learning.decoder.sequences import Renewing, Sequences
from benchmarks.learning.decoder.small_decoder import Decoder, Shape, sample
from benchmarks.learning.decoder.training import Training
from benchmarks.learning.exported_tasks import oracle_rewards, oracle_tasks
from benchmarks.learning.graph_sources import held_out_samples, kept_sample, line_of, version_samples
from benchmarks.learning.journals import journal
from benchmarks.learning.judge import Judge, Verdict, shares
from benchmarks.learning.make_demonstrations import demonstration, rows_of
from benchmarks.learning.nearness import by_similarity
from benchmarks.learning.proof.attempts import Attempts
from passbench.contract import NAMES_FILE
from tests.agent.readable.test_readable import FEED_FORWARD, feed_forward
from tests.agent.support import sample as sample_of
from tests.agent.support import variant
from tests.support.stores import publish_samples

ROOT = Path(__file__).resolve().parents[3]
HELD_OUT = ROOT / "benchmarks" / "dedup" / "held_out_1" / "version"
READABLE = Readable(margin=-100.0)
"""Many tests have it write passes for the same graphs; it knows what it has lowered."""


def test_a_decoder_learns_to_repeat_and_sampling_agrees_with_it():
    torch.manual_seed(0)
    model, rng = Decoder(Shape(12, 32, 2, 2, 32)), random.Random(0)
    sequences = []
    for _ in range(300):
        word = [rng.randint(2, 11)] * rng.randint(1, 3)
        sequences.append(([*word, 1, *word, 0], len(word) + 1))
    training = Training(model, sequences, 256, 2e-2, rng)
    training.run(1e9, (0.0, 1.0), most_steps=120)
    training.run(1e9, (0.9, 1.0), most_steps=50)
    found = training.on(sequences[:20])
    assert training.losses[-1] < 0.2 * training.losses[0] > 0.2 > found["loss"]
    assert found["tokens"] >= found["whole"] > 0.8
    prompts = [[5, 5, 1], [7, 1], [3, 3, 3, 1]]
    written = sample(model, prompts, 0, longest=6)
    for prompt, answer in zip(prompts, written, strict=True):
        ids = list(prompt)
        while len(ids) < len(prompt) + 6:
            following = int(model(torch.tensor([ids]))[0, -1].argmax())
            if following == 0:
                break
            ids.append(following)
        assert answer == ids[len(prompt) :]
    assert [len(answer) for answer in written] == [2, 1, 3]


def test_composed_graphs_are_many_and_what_is_written_for_them_is_right():
    chosen = list(islice(composed(3), 40))
    assert len({s.family_hash for s in chosen}) > 30 and [s.sample for s in chosen[:3]] == [
        s.sample for s in islice(composed(3), 3)
    ]
    few, files = few_rows(chosen[0]), READABLE.write(chosen[0]).files
    spoilt = {name: text.replace("tl.store", "tl.stor") for name, text in files.items()}
    hangs = {name: text.replace("    out_0 =", "    while True: pass\n    out_0 =") for name, text in files.items()}
    with Judge(1) as judge:
        found = judge.judge([(few, answer_of(files)), (few, "no files"), (few, answer_of(spoilt))])
    assert [v.right for v in found] == [True, False, False]
    assert [v.parses for v in found] == [True, False, True]
    assert shares(found)["right"] == pytest.approx(1 / 3)
    with OwnPasses() as process:
        right, wrong = process.check(few, files), process.check(few, spoilt)
        process.patience = 0.5
        late = process.check(one_of_each_layout(few, 1), hangs)
    assert (right.fault, right.checked, right.variants) == ("", BY_INTERPRETER, 3) and right.level <= -5
    assert "stor" in wrong.fault and not wrong.checked
    assert "no check in 0 s" in late.cause and not late.fault


def test_tokens_are_few_and_text_comes_back():
    line = "def pattern(in_0, in_1):\n    tmp_0 = torch.add(in_0, in_1)\nimport triton.language as tl\n"
    text = Text.trained([f"Task x\n\n{line}{n}" for n in range(50)], 400)
    ids, prompt = text.pair(f"Task 7\n\n{line}", f"{line}\ttmp_12 = 0.25\n")
    assert text.tokenizer.decode(ids[prompt:-1]) == f"{line}\ttmp_12 = 0.25\n"
    assert len(ids) < 60 and ids[0] == text.tokenizer.encode(line).ids[0]


def test_a_prompt_has_variants_that_differ_in_more_than_dtypes():
    given = "Task x: 3 variants\n\nSource of variants 0, 1, 2:\nreturn\n\nInputs by variant:\n"
    given += "0: in_0 float16[2, 4], in_1 int64[4]\n1: in_0 float32[2, 4], in_1 int64[4]\n"
    given += "2: in_0 float16[3, 4], in_1 int64[4]"
    lines = given.splitlines()
    assert shortened(given) == "\n".join([*lines[2:7], lines[8]])


def test_an_answer_repeats_a_task_whose_lines_are_its_pattern():
    task = describe_graphs(next(iter(composed(4))))
    lines = "".join(f"{line[4:]}\n" for line in task.splitlines() if line.startswith("        tmp_"))
    answer = f"import torch\n\n\ndef pattern(in_0):\n{lines}    return tmp_1\n"
    assert lines and repeats(task, answer) and not repeats(task, answer.replace("tmp_0", "tmp_9", 1))
    assert not repeats(task, answer.replace(lines, lines + "    tmp_99 = in_0 + 1\n"))
    assert not repeats(task, "nothing")


def test_answers_are_read_as_they_are_written():
    files = {"fuse_a.py": "x = 1\n", "fuse_b.py": "y = '''```'''\n", NAMES_FILE: '["fuse_b", "fuse_a"]\n'}
    assert files_of(answer_of(files, "Because.")) == files
    assert files_of("Here:\n```python\nx = 1\n```") == {"fuse.py": "x = 1\n", NAMES_FILE: '["fuse"]\n'}
    assert files_of("`a.py`:\n```python\nx = 1\n```\n") == {"a.py": "x = 1\n", NAMES_FILE: '["a"]\n'}
    assert files_of("nothing") == {} == files_of("```python\nx\n```\n```python\ny\n```")


def test_parts_of_a_version_hold_each_graph_once_and_each_family_whole(held_out, tmp_path):
    given = [replace(s, split="train") for s in held_out_samples([held_out])]
    version = publish_samples(given, tmp_path)
    parts = [list(version_samples(version, (n, 3))) for n in range(3)]
    assert {v.graph_hash for s in given for v in s.variants} == {s.variants[0].graph_hash for p in parts for s in p}
    assert sum(len(s.variants) for p in parts for s in p) == sum(len(s.variants) for s in given)
    assert all(len({v.graph_hash for v in s.variants}) == 1 for p in parts for s in p)
    families = [{s.family_hash for s in p} for p in parts]
    assert all(families) and sum(map(len, families)) == len({s.family_hash for s in given})


@pytest.fixture(scope="module")
def held_out(tmp_path_factory):
    """A version of some of the held-out samples, with few variants of each: each process of these tests reads it."""
    few = [replace(s, variants=s.variants[:4]) for s in held_out_samples([HELD_OUT])[:60]]
    return publish_samples(few, tmp_path_factory.mktemp("held_out")).path


@pytest.fixture(scope="module")
def data(tmp_path_factory, held_out):
    place = tmp_path_factory.mktemp("data")
    arguments = ["make", "--held-out", held_out, "--composed", "5", "--seed", "4", "--journal", place / "journal"]
    for more in (["--part", "0/1"], ["--out", place / "demonstrations.parquet"]):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.argv", [*map(str, arguments), *map(str, more)])
            assert make_demonstrations.main() == 0
    assert len((place / "journal" / "0-of-1.jsonl").read_text().splitlines()) == 5  # the second time nothing was new
    return place / "demonstrations.parquet"


def test_several_processes_take_each_graph_once_and_few_of_a_family(tmp_path):
    one, other = Claims(tmp_path, 2), Claims(tmp_path, 2)
    place = one.take("graph 1", "family")
    assert place and other.take("graph 1", "family") is None and other.take("graph 2", "family")
    assert one.take("graph 3", "family") is None
    other.leave(place)
    assert other.take("graph 3", "family") and one.take("graph 4", "another")
    lines = [{"graph_hash": "g", "family_hash": "f", "cause": cause} for cause in ("", "wrong")]
    resumed = Claims(tmp_path / "resumed", 1)
    resumed.fill([lines[1]])
    assert resumed.take("g", "f") is None and resumed.take("h", "f")
    assert {p.name for p in (tmp_path / "resumed").iterdir()} == {"g", "h", "f-0"}


def test_passes_that_were_written_are_checked_later_by_passbench(tmp_path):
    held, author = HeldOut.of(()), READABLE
    given = few_rows(next(iter(composed(4))))
    with checking(LATER, 0, 1, None) as check:
        written = demonstration(given, held, author, check)
    assert written["cause"] == "" == written["checked"] and not rows_of([written | ABOUT], [])
    with checking(PASSBENCH, 0, 1, None) as check:
        line = demonstration(given, held, None, check, written)
        wrong = demonstration(given, held, None, check, written | {"answer": spoilt(written["answer"])})
    assert (line["checked"], line["variants"], line["cause"]) == (BY_PASSBENCH, 1, "") and line["level"] <= -5
    assert wrong["cause"] == "wrong" and re.match("wrong|right at t = 0 only", wrong["reason"])
    kept = line | ABOUT | {"checked": BY_INTERPRETER, "answer": "earlier"}
    assert [row["answer"] for row in rows_of([line | ABOUT], [kept])] == [line["answer"]]
    assert rows_of([wrong | ABOUT], [kept]) == [] and rows_of([wrong | ABOUT | {"graph_hash": "h"}], [kept])


def test_where_kernels_round_otherwise_eagers_own_calls_are_replayed():
    given = sample_of(variant(feed_forward, *FEED_FORWARD))
    asked = []

    def check(_, files):
        asked.append(files["fuse.py"])
        return Checked("right at t = -3 only: output 0") if "@triton.jit" in files["fuse.py"] else Checked(checked="x")

    line = demonstration(replace(given, split="train"), HeldOut.of(()), READABLE, check)
    assert [("@triton.jit" in text, "captured(" in text) for text in asked] == [(True, True), (False, True)]
    assert line["cause"] == "" and files_of(line["answer"])["fuse.py"] == asked[1]


def test_every_layout_that_a_task_shows_is_checked():
    given = few_rows(next(iter(composed(4))))
    assert len(given.variants) == 3 and len(one_of_each_layout(given, 1).variants) == 1
    assert all(one in one_of_each_layout(given, 3).variants for one in given.variants)
    first = given.variants[0]
    wide = first.with_changes(inputs=tuple(replace(i, stride=tuple(2 * s for s in i.stride)) for i in first.inputs))
    found = one_of_each_layout(replace(given, variants=(wide, *given.variants[1:])), 1)
    assert wide in found.variants and len(found.variants) == 2


def test_a_journal_of_written_passes_holds_what_checks_need(held_out, tmp_path, monkeypatch):
    common = ["make", "--held-out", held_out, "--part", "0/1"]
    written, checked = tmp_path / "written", tmp_path / "checked"
    runs = (
        ["--journal", written, "--composed", "2", "--seed", "12", "--check", "later"],
        ["--journal", checked, "--written", written],
    )
    for more in runs:
        monkeypatch.setattr("sys.argv", [*map(str, common), *map(str, more)])
        for place in (written, checked):
            place.mkdir(exist_ok=True)
        assert make_demonstrations.main() == 0
        for path in written.glob("*.jsonl"):
            path.with_suffix(".jsonl.xz").write_bytes(lzma.compress(path.read_bytes()))
            path.unlink()
    before, after = journal(written), journal(checked)
    assert [line["sample"] for line in before] == [line["sample"] for line in after]
    assert {line["checked"] for line in before} == {""} and {line["checked"] for line in after} == {BY_INTERPRETER}
    assert [line["answer"] for line in before] == [line["answer"] for line in after]


ABOUT = {"sample": "s", "kind": "real", "graph_hash": "g", "family_hash": "f"}


def spoilt(answer):
    return re.sub(r"tl\.store\((.+?), (\w+), mask", r"tl.store(\1, \2 + 1, mask", answer)


def test_a_known_pass_is_judged_as_the_task_that_is_exported_has_it(tmp_path):
    given = few_rows(next(iter(composed(4))))
    answer = answer_of(READABLE.write(given).files)
    exported, passes = oracle_tasks.task_of(given, answer, tmp_path)
    assert exported == given == replace(kept_sample(line_of(given)), rarity=given.rarity, reason=given.reason)
    assert {path.name: path.read_text() for path in passes.iterdir()} == files_of(answer)
    assert oracle_tasks.earned_by_nothing(tmp_path, "cpu") == 0.0


def test_rewards_of_known_passes_are_counted_by_task():
    found = [
        {"graph": g, "reward": r, "status": "ok" if r else "wrong", "seconds": s, "side_by_side": 1}
        for g, r, s in REWARDS
    ]
    summary = oracle_rewards.summary(found)
    assert (summary["tasks"], summary["earning"], summary["statuses"]) == (3, 2, {"ok": 2, "wrong": 1})
    assert (summary["median_reward"], summary["median_seconds"], summary["most_seconds"]) == (0.5, 2.0, 9.0)
    assert (summary["twice"], summary["twice_within_3_percent"]) == (2, 1)
    assert summary["farthest_apart"] == pytest.approx(0.1)
    assert oracle_rewards.summary([])["median_reward"] is None, "time ended before any verdict"
    beside = {**found[0], "reward": 0.0, "status": "rejected", "side_by_side": 3}
    assert oracle_rewards.summary([beside, *found]) == summary | {"median_seconds": 2.0}, "the verdict alone counts"


def test_parts_of_rewards_become_one_summary(tmp_path):
    parts = [tmp_path / "0.json", tmp_path / "1.json"]
    for number, (part, (graph, reward, seconds)) in enumerate(zip(parts, REWARDS, strict=False)):
        verdict = {"graph": graph, "reward": reward, "status": "ok", "seconds": seconds, "side_by_side": number + 1}
        part.write_text(json.dumps({"device": "one", "verdicts": [verdict]}))
    found = oracle_rewards.joined(parts)
    assert (found["device"], found["tasks"], len(found["verdicts"])) == ("one", 2, 2)
    assert [found["by_processes"][n]["median_seconds"] for n in "12"] == [1.0, 2.0]
    assert oracle_rewards.joined([])["tasks"] == 0, "no process has written yet"


def test_tasks_of_demonstrations_are_judged_alone_and_side_by_side(tmp_path, monkeypatch):
    """Two tasks on a CPU: one alone and twice, then the other; nothing earns nothing."""
    given = [few_rows(s) for s in islice(composed(4), 2)]
    rows = [
        {
            "graph_hash": s.variants[0].graph_hash,
            "task": describe_graphs(s),
            "answer": answer_of(READABLE.write(s).files),
            "cause": "",
        }
        for s in given
    ]
    data, written = tmp_path / "demonstrations.parquet", tmp_path / "written"
    pq.write_table(pa.Table.from_pylist(rows), data)
    written.mkdir()
    lines = [json.dumps(row | line_of(s)) + "\n" for row, s in zip(rows, given, strict=True)]
    (written / "j.jsonl").write_text("".join(lines))
    out = tmp_path / "oracle.json"
    arguments = ["oracle", "--written", written, "--demonstrations", data, "--out", out]
    arguments += ["--device", "cpu", "--tasks", "9", "--alone", "1", "--again"]
    monkeypatch.setattr("sys.argv", [*map(str, arguments)])
    assert oracle_rewards.main() == 0
    found = json.loads(out.read_text())
    assert (found["tasks"], found["earning"], found["twice"], found["twice_within_3_percent"]) == (2, 2, 1, 1)
    assert found["nothing_was_left"] == {"tasks": 2, "earning": 0}
    assert all({"compiling", "seconds"} <= set(one) for one in found["verdicts"])


def test_processes_side_by_side_share_cores_that_are_too_few_to_pin():
    assert [oracle_rewards.cores_of(n, 3, range(4)) for n in range(3)] == [{0, 1, 2}, {1, 2, 3}, {2, 3, 0}]
    assert [oracle_rewards.cores_of(n, 2, range(8)) for n in range(2)] == [{0, 1, 2, 3}, {4, 5, 6, 7}]


def test_doubtful_demonstrations_are_checked_again(tmp_path, monkeypatch):
    """Of four rows the first is doubtful and wrong, the second doubtful and right, the third right by far; the fourth
    is doubtful, and its sample is in no journal."""
    given = [few_rows(s) for s in islice(composed(4), 4)]
    given = [replace(s, sample=f"fusible-{n}", variants=s.variants[:1]) for n, s in enumerate(given)]
    rows, lines = [], []
    for n, one in enumerate(given):
        answer = answer_of(READABLE.write(one).files)
        row = {"graph_hash": one.variants[0].graph_hash, "task": describe_graphs(one), "level": -10 if n == 2 else -5}
        rows.append(row | {"answer": answer if n else spoilt(answer), "device": "NVIDIA H200"})
        lines.append(json.dumps(row | {"cause": ""} | line_of(one)) + "\n")
    data, out, record = (tmp_path / name for name in ("rows.parquet", "out.parquet", "record.json"))
    pq.write_table(pa.Table.from_pylist(rows), data)
    (tmp_path / "j.jsonl").write_text("".join(lines[:3]))
    arguments = ["recheck", "--demonstrations", data, "--written", tmp_path, "--out", out, "--record", record]
    monkeypatch.setattr("sys.argv", [*map(str, arguments), "--device", "cpu", "--sure-only"])
    assert recheck.main() == 0
    found = json.loads(record.read_text())
    assert (found["doubtful"], found["checked"], found["right"]) == (3, 2, 1)
    assert found["left"] == [rows[3]["graph_hash"]]
    assert pq.read_table(out).to_pylist() == rows[1:3]
    assert recheck.doubtful_rows(rows[:2], verdicts.found_right(found)) == rows[:1]


KERNEL = """
@triton.jit
def fused_kernel(x_ptr, out_ptr):
    tl.store(out_ptr, {body})


@torch.fx.wrap
def fused(x):
    out = torch.empty(x.shape, dtype={dtype}, device=x.device)
    Launch(fused_kernel, (1,))(x, out)
    return out
"""
SUM, RELU = (f"tl.{name}(tl.load(x_ptr), 0)" for name in ("sum", "maximum"))


@pytest.mark.parametrize(
    ("lines", "body", "dtype", "level", "found"),
    [
        ("tmp_1 = tmp_0.view(4)", SUM, "x.dtype", -5, ""),
        ("tmp_1 = torch.mm(tmp_0, in_1)", SUM, "x.dtype", -10, PRODUCTS),
        ("tmp_1 = torch.mm(tmp_0, in_1)", SUM, "x.dtype", None, PRODUCTS),
        ("tmp_1 = torch.mm(tmp_0, in_1)", RELU, "x.dtype", -10, ""),
        ("tmp_1 = torch.mm(in_0, in_1)", SUM, "x.dtype", -10, ""),
        ("tmp_1 = tmp_0.view(4) - in_1", SUM, "x.dtype", -10, PRODUCTS),
        ("tmp_1 = tmp_0.view(4)", SUM, "torch.float32", -10, WIDER),
        ("tmp_1 = tmp_0.view(4)", RELU, "torch.float32", -10, ""),
    ],
)
@pytest.mark.parametrize("replayed", [False, True])
def test_what_adds_up_a_kernels_results_or_hands_out_more_than_was_rounded_is_doubtful(
    lines, body, dtype, level, found, replayed
):
    """Whether the task's own calls read what the kernel makes, or those that the pass replays behind it do."""
    task = "Source:\n```python\nclass GraphModule:\n    def forward(self, in_0, in_1):\n"
    task += f"        tmp_0 = torch.softmax(in_0, -1)\n        {lines}\n        return tmp_1\n```\n"
    pattern = "def pattern(in_0):\n    tmp_0 = torch.softmax(in_0, -1)\n    return tmp_0\n"
    if replayed:
        pattern = f"def pattern(in_0, in_1):\n    tmp_0 = torch.softmax(in_0, -1)\n    {lines}\n    return tmp_1\n"
        pattern += f"def steps(in_0, in_1):\n    tmp_0 = fused(in_0)\n    {lines}\n    return tmp_1\n"
    files = {"fuse.py": KERNEL.format(body=body, dtype=dtype) + pattern}
    assert doubt(task, files, {"bfloat16", "int64"}, level) == found
    single = FLOAT32 if level == -5 else "" if level == -10 else found
    assert doubt(task, files, {"float32"}, level) == single


@pytest.mark.parametrize(("level", "found"), [(-10, BACKWARD), (None, BACKWARD), (-5, FLOAT32)])
def test_a_backward_of_a_convolution_is_doubtful_without_any_kernel(level, found):
    task = "```python\nclass GraphModule:\n    def forward(self, in_0, in_1, in_2):\n"
    task += "        tmp_0 = torch.ops.aten.convolution_backward.default(in_0, in_1, in_2)\n        return tmp_0\n```\n"
    assert doubt(task, {"fuse.py": "def pattern(in_0):\n    return in_0\n"}, {"float32"}, level) == found


def test_the_dtypes_of_a_check_are_those_of_the_variant_that_the_graph_chooses():
    task = (
        "0: in_0 float32[2, 3], in_1 int64[2]\n1: in_0 float16[2, 3], in_1 int64[2]\n2: in_0 bfloat16[4], in_1 int64[2]"
    )
    assert [checked_dtypes(task, f"00000{n}") for n in (0, 1)] == [{"float32", "bfloat16"}, {"float16", "bfloat16"}]


def test_how_many_are_right_by_how_near_they_are():
    found = by_similarity([0.9, 0.8, 0.79, 0.1], [True, False, True, False])
    assert found == {"0.8 and more": [1, 2], "0.6 to 0.8": [1, 1], "below 0.6": [0, 1]}


def test_graphs_of_records_are_left_out():
    run = {"verdicts": [{"graph": "a", "reward": 0.4}, {"graph": "b", "reward": 0.0}]}
    assert [*verdicts.judged_graphs(run)] == [("a", True), ("b", False)]
    assert [*verdicts.judged_graphs({"runs": {"one": run}})] == [("a", True), ("b", False)]


REWARDS = (("a", 0.5, 1.0), ("b", 0.6, 2.0), ("c", 0.0, 3.0), ("b", 0.66, 2.0), ("a", 0.51, 9.0))


def test_demonstrations_are_of_families_that_are_not_held_out(data, held_out):
    rows = pq.read_table(data).to_pylist()
    held = {s.family_hash for s in held_out_samples([held_out])}
    assert rows and not held & {row["family_hash"] for row in rows}
    assert len({row["graph_hash"] for row in rows}) == len(rows)
    assert all(next(iter(files_of(row["answer"]))) == "fuse.py" for row in rows)


def test_demonstrations_become_conversations_with_a_card(data, tmp_path, monkeypatch):
    out = tmp_path / "chat"
    monkeypatch.setattr("sys.argv", ["chat", "--demonstrations", str(data), "--out", str(out)])
    assert chat_dataset.main() == 0 and chat_dataset.main() == 1  # the second time it is there
    before = {row["graph_hash"]: row for row in pq.read_table(data).to_pylist()}
    splits = read_dataset(out)
    assert {split for split, rows in splits.items() for row in rows} <= {"train", "validation"}
    after = [row for rows in splits.values() for row in rows]
    assert {row["graph_hash"] for row in after} == set(before)
    for row in after:
        first, (_, user), (said,) = before[row["graph_hash"]], row["prompt"], row["completion"]
        assert first["task"] in user["content"] and files_of(said["content"]) == files_of(first["answer"])
        assert said["content"].startswith(first["rationale"]) and "Eager runs" in first["rationale"]
    assert f"{len(before)} passes" in (out / "README.md").read_text()


def test_numbers_change_in_a_task_and_its_answer_alike():
    task = "in_0 [2, 197, 768]: tmp_0 = in_0.view(394, 768); layer_norm(tmp_0, [768], 1e-05) * 0.25, x[197:1024]"
    answer = "BLOCK=1024 tmp_0 = in_0.view(394, 768) eps + 1e-05, num_warps=16"
    changed, own = renumbered(task, answer, random.Random(3))
    number = re.search(r"view\((\d+), (\d+)\)", changed).groups()
    assert number[0] not in ("394", "768") and "768" not in changed and "0.25, x[" in changed and ":1024]" in changed
    assert f"view({number[0]}, {number[1]})" in own and "BLOCK=1024" in own and "num_warps=16" in own
    small = re.search(r"1e-\d\d", changed)[0]
    assert f"eps + {small}," in own and changed.startswith("in_0 [2, ") and own.endswith("16")
    assert renumbered(task, answer + " 1536", random.Random(3)) == (task, answer + " 1536")


def test_a_tasks_lines_are_replayed_as_the_author_replays_them():
    given = sample_of(variant(feed_forward, *FEED_FORWARD))
    task, files = describe_graphs(given), READABLE.replayed(given).files
    assert files_of(replay_of(task, 1)) == files
    lines = task.count("\n        tmp_")
    assert replay_of(task, lines) and replay_of(task, lines + 1) is None
    row = {"task": task, "answer": "x"}
    assert with_replays(row, lines) == [{"task": task, "answer": replay_of(task, 1)}]
    assert with_replays(row, lines + 1) == [row]


@pytest.mark.parametrize(
    ("lines", "returned"),
    [
        (["tmp_0 = in_0.add_(1)"], "tmp_0"),
        (["in_0 += 1", "tmp_0 = in_0 * 2"], "tmp_0"),
        (["tmp_0 = torch.nn.functional.relu(in_0, inplace=True)"], "tmp_0"),
        (["tmp_0 = torch.rand_like(in_0)"], "tmp_0"),
        (["tmp_0 = torch.nn.functional.dropout(in_0, 0.1, True, False)"], "tmp_0"),
        (["tmp_0 = in_0.view(2, 3)", "tmp_1 = tmp_0 + 1"], "tmp_0, tmp_1"),
        (["tmp_0 = torch.ops.aten.t.default(in_0)", "tmp_1 = tmp_0[0]"], "tmp_1"),
        (["tmp_0 = in_0 + 1"], "in_0, tmp_0"),
    ],
)
def test_what_a_replay_would_do_otherwise_than_eager_is_not_replayed(lines, returned):
    assert replay_of(_task(["tmp_0 = in_0 * 2", "tmp_1 = tmp_0.view(6)"], "tmp_1"), 1)
    assert replay_of(_task(lines, returned), 1) is None


def test_the_first_tokens_choose_between_replays_and_kernels():
    given = [few_rows(s) for s in islice(composed(4), 6)]
    rows = [{"task": describe_graphs(s), "answer": answer_of(READABLE.write(s).files)} for s in given]
    both = [each for row in rows for each in with_replays(row, 2)]
    assert len(both) > len(rows) and [row for row in both if "captured" not in row["answer"]] == rows
    text = Text.trained([part for row in both for part in row.values()], 600)
    begins = Begins.of([row["answer"] for row in both], text)
    replay, kernels = (text.tokenizer.decode(ids) for ids in (begins.replay, begins.kernels))
    assert "captured" in replay and "triton" not in replay and "import triton" in kernels and "captured" not in kernels
    assert Begins.of([], text) == Begins([], [])


def _task(lines, returned):
    body = "".join(f"        {line}\n" for line in lines)
    return f"Task\n\n```python\n    def forward(self, in_0):\n{body}        return ({returned},)\n```\n"


def test_copy_tasks_repeat_a_graph_that_is_drawn_anew():
    given = [few_rows(s) for s in islice(composed(9), 20)]
    rows = [{"task": describe_graphs(s), "answer": "import torch\n\n\ndef pattern(in_0):\n    ..."} for s in given]
    drawn = CopyTasks(rows, random.Random(1))
    found = [drawn() for _ in range(50)]
    assert len({task for task, _, _ in found}) == 50 and {start for _, start, _ in found} == {"import torch\n\n\n"}
    known = " ".join(row["task"] for row in rows)
    names = {name for _, _, answer in found for name in re.findall(r"torch\.([a-z_]+)\(", answer)}
    assert any(f"torch.{name}(" in known for name in names) and not all(f"torch.{name}(" in known for name in names)
    for task, _, answer in found:
        forward, lines = re.search(r"def forward\(self, (.*)\):\n((?:        tmp_.*\n)+)", task).groups()
        assert answer.startswith(f"def pattern({forward}):\n")
        assert [line.strip() for line in lines.splitlines()] == re.findall(
            r"^    (tmp_\d+ = .*)$", answer, re.MULTILINE
        )
        assert set(re.findall(r"\bin_\d+", lines)) == set(forward.split(", ")) and "\n0: in_0 float" in task
        ast.parse(answer)


def test_attempts_are_judged_latest_point_first_while_there_is_time():
    clock, notes, asked, begun = [0.0], {}, [], Event()

    def judged(name, answers):
        asked.append(name)
        clock[0] += 10.0
        return [Verdict("s", True, True, True, answer == "right") for answer in answers]

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as thread:
        patch.setattr("benchmarks.learning.proof.attempts.time", SimpleNamespace(monotonic=lambda: clock[0]))
        attempts = Attempts(thread, judged, notes.update, 35.0)
        thread.submit(begun.wait)
        attempts.add("early", [["right", "wrong"], ["right", "right"]])
        attempts.add("late", [["wrong", "right"], ["wrong", "wrong"]])
        begun.set()
        attempts.finish()
    assert asked == ["sampled late", "sampled late", "sampled early"], "a fourth would end at 40"
    assert notes["pass_at_k late"] == {"pass@1": 0.25, "pass@2": 0.5, "first allowed": 0.5, "attempts": 2}
    assert notes["pass_at_k early"]["attempts"] == 1


def test_validation_tasks_are_of_families_that_are_not_trained_on(tmp_path):
    given = [few_rows(s) for s in islice(composed(9), 60)]
    version = publish_samples([replace(s, split="train") for s in given], tmp_path)
    found = from_scratch.validation_tasks([version.path], HeldOut.of(()), 50, 4000)
    assert found and all(split_of(t.sample.family_hash) == "validation" and t.validation for t in found)
    assert len({t.sample.family_hash for t in found}) == len(found)
    assert not from_scratch.validation_tasks([version.path], HeldOut.of(given), 50, 4000)


def test_new_tasks_are_of_graphs_that_no_demonstration_shows():
    first = new_tasks([], 3, 6, 4000, HeldOut.of(()), set())
    known = {first[0].sample.variants[0].graph_hash}
    held = HeldOut.of([first[1].sample])
    left = new_tasks([], 3, 4, 4000, held, known)
    assert {t.sample.sample for t in left} == {t.sample.sample for t in first[2:]}
    assert len({t.sample.family_hash for t in first}) == 6 and all(t.text.startswith("Task") for t in first)


def test_how_soon_a_decoder_copies_is_written_down_along_training(data, tmp_path, monkeypatch):
    arguments = ["curve", "--demonstrations", data, "--out", tmp_path / "curve.json", "--longest", "600"]
    arguments += ["--points", "2", "--steps", "2", "--width", "32", "--layers", "1", "--reach", "1"]
    monkeypatch.setattr("sys.argv", [*map(str, arguments)])
    copying_curve.main()
    found = json.loads((tmp_path / "curve.json").read_text())
    assert [point["steps"] for point in found["points"]] == [2, 4] and found["sequences"] > 5
    assert found["points"][1]["drawn"]["loss"] < found["points"][0]["drawn"]["loss"]


@pytest.mark.parametrize("run", ["h200_from_scratch_2", "h200_from_scratch_3"])
def test_the_curve_of_a_record_is_a_table_and_a_figure(run, tmp_path):
    record = json.loads((ROOT / "benchmarks" / "learning" / run / "record.json").read_text())
    lines = curve_figure.table(record).splitlines()
    assert len(lines) == 2 + len(record["points"]) and len({line.count("|") for line in lines}) == 1
    kept = {"h200_from_scratch_2": "| 0.22 | – | – | 68 % |", "h200_from_scratch_3": "| 0.09 | 16 % | 37 % | 80 % |"}
    assert any(kept[run] in line for line in lines)
    curve_figure.draw(record, tmp_path / "curve.svg")
    assert (tmp_path / "curve.svg").read_text().count("<path") > 4


def test_what_answers_are_worth_is_a_table():
    record = json.loads((ROOT / "benchmarks" / "learning" / "h200_from_scratch_6" / "record.json").read_text())
    found = curve_figure.ends(record)
    assert "| after expert iteration | 30.0 % | 40.0 % | 8 | 32.5 % |" in found
    assert "variants of 18 tasks" in found and "| distill | 18 | 15 | 2.92 | 3.87 |" in found
    assert curve_figure.ends({"points": []}), "a record that broke off has what there is"


def test_the_sequences_of_an_epoch_have_other_numbers_and_the_rows_that_came():
    given = list(islice(composed(9), 6))
    tasks = [describe_graphs(s) for s in given]
    rows = [{"task": task, "answer": f"import torch\n\n\ndef pattern(in_0):\n{task}"} for task in tasks]
    text = Text.trained([row["task"] for row in rows], 400)
    sequences = Sequences(rows[:4], text, 4000, copies=0.0)
    first, second = sequences.as_they_are(), sequences.renewed(rows[4:])
    assert [len(each) for each in (first, second, sequences.renewed())] == [4, 6, 6] and first != second[:4]
    whole = Sequences(rows, text, 4000, copies=0.5, replays=1).renewed()[6:]
    ends = [text.end in ids for ids, _ in whole]
    assert any(ends) and all("captured" in text.tokenizer.decode(ids) for ids, _ in whole if text.end in ids)
    with Renewing(Sequences(rows[:4], text, 4000, copies=0.5), lambda: rows[4:5]) as renewing:
        assert len(renewing()) > 5 + 3 and len(renewing()) > 6 + 3


def test_the_whole_experiment_on_a_cpu(data, held_out, tmp_path):
    row = next(row for row in pq.read_table(data).to_pylist() if row["split"] == "train")
    line = row | {"graph_hash": "new", "cause": "", "variants_shown": [{"op_sequence": row["op_sequence"]}]}
    (tmp_path / "j.jsonl").write_text("".join(json.dumps(each) + "\n" for each in (line, {"cause": "too long"})))
    given = f"--data {data} --written {tmp_path} --held-out {held_out} --out {tmp_path} --tiny --device cpu"
    given += " --train-seconds 2 --points 1"
    given += " --families 2 --samples 2 --own-tasks 2 --workers 1 --longest 12 --context 4000 --vocabulary 500"
    given += " --growing 1 --copies 0.5 --replays 3 --end 1000"
    assert from_scratch.main([*given.split(), "--batch-tokens", "2000"]) == 0
    record = json.loads((tmp_path / "record.json").read_text())
    assert [p["point"] for p in record["points"] if p["point"] != "readable"] == [
        "before", "2 s of training", "after expert iteration",
    ]  # fmt: skip
    learned = record["demonstrations"]
    assert learned["rows"] == learned["checked"] + 2, "one was written alone, and is learned in both forms"
    assert learned["rows"] > learned["graphs"]
    assert any(p["point"] == "readable" for p in record["points"]), "judged beside training"
    assert record["expert_iteration"]["answers"] == 8 and "pass@2" in record["pass_at_k after training"]
    assert record["pass_at_k after expert iteration"]["attempts"] == 2
    answers = pq.read_table(tmp_path / "answers.parquet").to_pylist()
    assert {"right", "matches"} <= set(record["with kernels alone"])
    assert len(answers) == 2 * (4 + 2 * 2) + 8 + 2 * (1 + 2)
