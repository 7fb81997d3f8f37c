"""The experiment of `benchmarks.learning.from_scratch`, small: a decoder learns a rule, and the whole runs on a CPU."""

import json
import random
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from agent.learning.answers import answer_of, files_of
from agent.readable.author import Readable
from benchmarks.learning import from_scratch, make_demonstrations
from benchmarks.learning.composed import composed
from benchmarks.learning.judge import Judge, shares
from benchmarks.learning.small_decoder import Decoder, Shape, sample
from passbench.contract import NAMES_FILE

ROOT = Path(__file__).resolve().parents[3]
HELD_OUT = ROOT / "benchmarks" / "dedup" / "held_out_1" / "version"


def test_a_decoder_learns_to_repeat_and_sampling_agrees_with_it():
    torch.manual_seed(0)
    model, rng = Decoder(Shape(12, 32, 2, 2, 32)), random.Random(0)
    sequences = []
    for _ in range(300):
        word = [rng.randint(2, 11)] * rng.randint(1, 3)
        sequences.append(([*word, 1, *word, 0], len(word) + 1))
    training = from_scratch.Training(model, sequences, 256, 1e-2, rng)
    training.run(60, (0.0, 0.5), most_steps=200)
    assert training.losses[-1] < 0.2 * training.losses[0]
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
    author = Readable(margin=-100.0)
    pairs = [(one, answer_of(author.write(one).files)) for one in chosen[:2]]
    pairs += [(chosen[0], "no files"), (chosen[1], pairs[1][1].replace("tl.store", "tl.stor"))]
    with Judge(1) as judge:
        found = judge.judge(pairs)
    assert [v.right for v in found] == [True, True, False, False]
    assert [v.parses for v in found] == [True, True, False, True] and shares(found)["right"] == 0.5


def test_answers_are_read_as_they_are_written():
    files = {"fuse_a.py": "x = 1\n", "fuse_b.py": "y = '''```'''\n", NAMES_FILE: '["fuse_b", "fuse_a"]\n'}
    assert files_of(answer_of(files, "Because.")) == files
    assert files_of("Here:\n```python\nx = 1\n```") == {"fuse.py": "x = 1\n", NAMES_FILE: '["fuse"]\n'}
    assert files_of("`a.py`:\n```python\nx = 1\n```\n") == {"a.py": "x = 1\n", NAMES_FILE: '["a"]\n'}
    assert files_of("nothing") == {} == files_of("```python\nx\n```\n```python\ny\n```")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "demonstrations.parquet"
    arguments = ["make", "--held-out", str(HELD_OUT), "--composed", "6", "--seed", "4", "--out", str(path)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", arguments)
        assert make_demonstrations.main() == 0
    return path


def test_demonstrations_are_of_families_that_are_not_held_out(data):
    rows = pq.read_table(data).to_pylist()
    held = {s.family_hash for s in make_demonstrations.held_out_samples([HELD_OUT])}
    assert rows and not held & {row["family_hash"] for row in rows}
    assert len({row["graph_hash"] for row in rows}) == len(rows)
    assert all(files_of(row["answer"]) for row in rows)


def test_the_whole_experiment_on_a_cpu(data, tmp_path):
    given = f"--data {data} --held-out {HELD_OUT} --out {tmp_path} --tiny --device cpu --train-seconds 2 --points 1"
    given += " --families 2 --samples 2 --own-tasks 2 --workers 1 --longest 12 --context 4000 --vocabulary 500"
    assert from_scratch.main([*given.split(), "--batch-tokens", "2000"]) == 0
    record = json.loads((tmp_path / "record.json").read_text())
    assert [p["point"] for p in record["points"]] == ["before", "2 s of training", "after expert iteration"]
    assert record["expert_iteration"]["answers"] == 4 and "pass@2" in record["pass_at_k after training"]
    answers = pq.read_table(tmp_path / "answers.parquet").to_pylist()
    assert len(answers) == 2 * (3 + 2 * 2)
