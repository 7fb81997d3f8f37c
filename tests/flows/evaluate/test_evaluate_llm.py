"""The author `llm` through the flow: killed in the middle and gone on with, published, exported as training data."""

import json
import shutil
import signal
import threading

import click
import pyarrow as pa
import pytest
import torch
from click.testing import CliRunner
from datasets import load_dataset

from agent.llm.options import LlmOptions
from flows.cli.export_chat import export_trajectories
from flows.cli.llm_options import llm_options
from flows.evaluate_model import evaluate_model
from passbench.contract import NAMES_FILE
from storage.errors import PassNetError
from storage.records import Sample
from storage.schema import SAMPLES
from storage.versions.store import Store
from tests.agent.llm.llm_support import text_of
from tests.passbench.samples import add_relu_sample, spec, variant
from tests.support.llm_server import LlmServer, Reply
from tests.support.processes import alive
from tests.support.stores import ROOT, publish_samples

KEY = "sk-a-key-that-nobody-may-see-0123456789"
MODEL = "openai-chat:scripted"
SOLVED = "fusible-solved"
ATTEMPTS = 2
KILLED_AT = 6  # requests


class Solver:
    """A model that writes an empty list, then a pass that is right for one sample and none for others, and submits.

    Request number `KILLED_AT` is held back until its client has been killed.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.held, self.killed = threading.Event(), threading.Event()

    def __call__(self, messages: list[dict]) -> Reply:
        self.asked += 1
        if self.asked == KILLED_AT:
            self.held.set()
            self.killed.wait(60)
        solved = f"Task {SOLVED}:" in messages[1]["content"]
        files = {"fuse.py": text_of("add_relu") if solved else "x = 1\n", NAMES_FILE: '["fuse"]' if solved else '["a"]'}
        given = sum(message["role"] == "assistant" for message in messages)
        writes = [("write_file", {"name": name, "content": text}) for name, text in files.items()]
        answers = (
            Reply([("write_file", {"name": NAMES_FILE, "content": "[]"}), ("check", {})]),
            Reply([*writes, ("check", {})]),
            Reply([("submit", {})]),
        )
        return answers[given]


def scaled(x):
    return (torch.sigmoid(x) * 3,)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A directory with a version of three samples in `data`: two to train on, one for evaluation."""
    root = tmp_path_factory.mktemp("llm")
    good = add_relu_sample((3, 40), (5, 7))
    variants = {"solved": good.variants, "unsolved": (variant(scaled, spec("x", 4, 8), name="u0"),)}
    variants["held"] = (variant(scaled, spec("x", 2, 2), name="h0"),)
    splits = {"solved": "train", "unsolved": "train", "held": "eval"}
    samples = [Sample(f"fusible-{name}", name, "fusible", splits[name], variants[name]) for name in variants]
    publish_samples(samples, root / "data")
    return root


@pytest.fixture(scope="module")
def evaluated(root, warm_forks):
    """The summary of a run that was killed in the middle and started again, that of a third start, and the server."""
    solver = Solver()
    with LlmServer(solver, [429]) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", KEY)
        patch.setenv("OPENAI_BASE_URL", server.url)
        llm = {"price": [1.0, 10.0], "backoff": 0.01, "steps": 10}
        call = {"author": "llm", "model": MODEL, "attempts": ATTEMPTS, "device": "cpu", "llm": llm}
        call |= {"data": str(root / "data"), "split": "train"}
        code = "import json, sys; from flows.evaluate_model import evaluate_model; "
        code += "evaluate_model.fn(**json.loads(sys.argv[1]))"
        with (root / "log").open("w") as log:
            first = warm_forks.start(code, [json.dumps(call)], files=(log.fileno(),) * 3, directory=ROOT)
            while not solver.held.wait(1):
                assert alive(first.pid), (root / "log").read_text()
            first.kill()
            assert first.wait(30) == -signal.SIGKILL
        assert len(Store(root / "data").versions()) == 1
        solver.killed.set()
        done = evaluate_model.fn(**call)
        again = evaluate_model.fn(**call)
    return done, again, server


def test_a_killed_run_goes_on_without_asking_twice(evaluated, root):
    done, again, server = evaluated
    rows = Store(root / "data").latest().table("trajectories").to_pylist()
    assert len(rows) == 2 * ATTEMPTS and {row["exit_status"] for row in rows} == {"submitted"}
    assert all(row["steps"] == 3 for row in rows)
    assert len(server.requests) == sum(row["steps"] for row in rows) + 1, "but for the one that was never answered"
    assert sum(row["failed_calls"] for row in rows) == 1
    assert again["version"] == done["version"] == "v2" and again["runs"] == done["runs"]


def test_costs_add_up(evaluated, root):
    done, _, _ = evaluated
    rows = Store(root / "data").latest().table("trajectories").to_pylist()
    used = done["runs"][0]["usage"]
    assert used["attempts"] == len(rows) and used["exits"] == {"submitted": len(rows)}
    assert used["cost_usd"] == pytest.approx(sum(r["input_tokens"] * 1e-6 + r["output_tokens"] * 1e-5 for r in rows))


def test_results_are_those_of_the_best_pass(evaluated, root):
    rows = Store(root / "data").latest().table("results").to_pylist()
    assert {(r["author"], r["model"]) for r in rows} == {("llm", MODEL)}
    assert {r["attempt"] for r in rows} == set(range(1, ATTEMPTS + 1))
    assert {r["status"] for r in rows if r["sample"] == SOLVED} == {"ok"}
    assert {r["status"] for r in rows if r["sample"] != SOLVED} == {"compile_error"}


def test_a_key_is_in_no_file(evaluated, root):
    *_, server = evaluated
    assert f"Bearer {KEY}" in server.keys
    files = [path for path in root.rglob("*") if path.is_file()]
    assert len(files) > 10 and not [path for path in files if KEY.encode() in path.read_bytes()]
    rows = Store(root / "data").latest().table("trajectories").to_pylist()  # Parquet is compressed
    assert KEY not in json.dumps(rows) and server.url not in json.dumps(rows)


def test_good_attempts_become_training_data(evaluated, root, tmp_path):
    with pytest.raises(PassNetError, match="not timed on a GPU"):
        export_trajectories(tmp_path / "none", root / "data")
    done = export_trajectories(tmp_path / "sft", root / "data", min_score=0.0, unmeasured=True)
    assert done["exported"] == ATTEMPTS
    rows = load_dataset(str(tmp_path / "sft"), "sft", split="train", cache_dir=str(tmp_path / "cache"))
    assert {row["sample"] for row in rows} == {SOLVED}
    messages, tools = rows[0]["messages"], json.loads(rows[0]["tools"])
    assert [m["role"] for m in messages[:3]] == ["system", "user", "assistant"]
    names = {tool["function"]["name"] for tool in tools}
    calls = [call for m in messages for call in m["tool_calls"] or []]
    assert calls and {call["function"]["name"] for call in calls} <= names
    answered = [m["tool_call_id"] for m in messages if m["role"] == "tool"]
    assert answered == [call["id"] for call in calls]
    once = export_trajectories(tmp_path / "best", root / "data", min_score=0.0, unmeasured=True, per_sample=1)
    assert once["exported"] == 1


def test_evaluation_samples_are_never_exported(evaluated, root, tmp_path):
    """The families that the run trained on have become evaluation families since."""
    store = Store(root / "data")
    latest = store.latest()
    samples = latest.table("samples").to_pylist()
    moved = pa.Table.from_pylist([{**row, "split": "eval"} for row in samples], SAMPLES)
    tables = {("samples", "eval"): moved, ("samples", "train"): moved.slice(0, 0)}
    keep = [config for config in latest.configs() if config != "samples"]
    store.publish(tables, kind="build", parent=latest, keep=keep, parameters={}, summary={})
    with pytest.raises(PassNetError, match=r"not of a training sample \(4\)"):
        export_trajectories(tmp_path / "sft", root / "data", min_score=0.0, unmeasured=True)


def test_a_spent_budget_publishes_what_is_finished_and_more_of_it_goes_on(root, tmp_path, monkeypatch):
    shutil.copytree(root / "data" / "versions" / "v1", tmp_path / "data" / "versions" / "v1")
    solver = Solver()
    solver.killed.set()
    with LlmServer(solver) as server:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        given = {
            "author": "llm",
            "model": "scripted",
            "data": str(tmp_path / "data"),
            "split": "train",
            "device": "cpu",
        }
        llm = {"price": [1.0, 10.0], "base_url": server.url}
        stopped = evaluate_model.fn(**given, llm={**llm, "run_cost_usd": 0.007})
        assert "raise the limit" in stopped["runs"][0]["stopped"] and stopped["runs"][0]["samples"] == 1
        assert stopped["runs"][0]["usage"]["exits"]["submitted"] == 1
        done = evaluate_model.fn(**given, llm={**llm, "run_cost_usd": 1.0})
    assert done["runs"][0]["run"] == stopped["runs"][0]["run"] and "stopped" not in done["runs"][0]
    assert done["runs"][0]["usage"]["exits"] == {"submitted": 2} and len(server.requests) == 6


def test_options_reach_the_author_from_the_command_line():
    seen = []

    @click.command()
    @click.option("--model")
    @llm_options
    def command(**parameters):
        seen.append(parameters)

    given = "--steps 3 --price 1 10 --stream false --run-cost-usd 5 --base-url http://127.0.0.1:1/v1 --settings".split()
    done = CliRunner().invoke(command, ["--model", "m", *given, '{"temperature": 0.5}'])
    assert done.exit_code == 0, done.output
    options = LlmOptions.from_dict(seen[0].pop("llm"))
    assert seen == [{"model": "m"}]
    assert (options.steps, options.price, options.stream, options.run_cost_usd) == (3, (1.0, 10.0), False, 5.0)
    assert options.settings == {"temperature": 0.5} and options.tokens == LlmOptions().tokens
    assert CliRunner().invoke(command, []).exit_code == 0 and seen[1]["llm"] == {}
    for wrong in (["--steps", "0"], ["--settings", "hot"], ["--settings", "[]"], ["--price", "1"]):
        assert CliRunner().invoke(command, wrong).exit_code == 2
