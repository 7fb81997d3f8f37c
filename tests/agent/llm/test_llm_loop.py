"""Limits, exits and going on: attempts by scripted models that err in every way. Nothing here is evaluated."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.author import RunLimitReached
from agent.llm.author import Llm
from agent.llm.options import LlmOptions
from agent.llm.state import Exit, State
from agent.llm.task import describe_times
from agent.registry import author
from storage.errors import PassNetError
from storage.graph.record import Graph, Op, Ref
from storage.records import Input, Variant
from storage.schema import TRAJECTORIES
from tests.agent.llm.llm_support import QUICK, SAMPLE, SUBMIT, Run, attempt, in_turn, outputs, scripted
from tests.support.llm_server import Reply

NOTE = Reply([("write_file", {"name": "a.py", "content": "x = 1\n"})])


def busy(messages):
    """A model that never ends and never says the same twice."""
    return Reply([("write_file", {"name": "a.py", "content": f"x = {len(messages)}\n"})])


@pytest.mark.parametrize(
    ("reply", "exit_status", "said"),
    [
        (Reply(text="I think the answer is 42."), Exit.NO_CALLS, None),
        (Reply([("run_shell", {"command": "ls"})]), Exit.MALFORMED, "there is no tool 'run_shell'"),
        (Reply([("write_file", {"name": "a.py"})]), Exit.MALFORMED, "content: Field required"),
        (Reply([("write_file", '{"name": "a.p')]), Exit.MALFORMED, "Its arguments are: name, content"),
        (Reply([("write_file", {"name": ["a"], "content": 1})]), Exit.MALFORMED, "valid string"),
        (Reply([("evaluate", "[]")]), Exit.MALFORMED, "object"),
        (Reply([("view_files", {})]), Exit.LOOP, "no files yet"),
        (Reply([("check", {})]), Exit.LOOP, "sorted_output_pass_rule_names.json is missing"),
    ],
    ids=["talk", "unknown tool", "missing argument", "no JSON", "wrong types", "no object", "views", "checks"],
)
def test_a_model_that_gets_nowhere_is_stopped(tmp_path, reply, exit_status, said):
    state = attempt(in_turn(reply), tmp_path / "pass")
    assert state.exit is exit_status and state.steps <= 6
    assert said is None or said in outputs(state)[0]
    assert list((tmp_path / "pass").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("../../outside.py", "cannot be a file of a pass"),
        ("/tmp/outside.py", "cannot be a file of a pass"),
        ("library.so", "cannot be a file of a pass"),
        ("a.py", "Wrote a.py"),
    ],
)
def test_files_stay_in_the_pass(tmp_path, name, said):
    writes = Reply([("write_file", {"name": name, "content": "x"})])
    state = attempt(in_turn(writes, Reply(text="?")), tmp_path / "pass")
    assert said in outputs(state)[0]
    assert {p.name for p in tmp_path.rglob("*.py")} <= {"a.py"}


def test_each_limit_ends_an_attempt_with_its_own_status(tmp_path):
    assert attempt(scripted(busy), tmp_path / "steps", steps=4).steps == 4
    tokens = attempt(scripted(busy), tmp_path / "tokens", tokens=5000)
    assert tokens.exit is Exit.TOKEN_LIMIT and tokens.input_tokens + tokens.output_tokens >= 5000
    cost = attempt(scripted(busy), tmp_path / "cost", cost_usd=0.01)
    assert cost.exit is Exit.COST_LIMIT
    assert cost.cost_usd == pytest.approx(cost.input_tokens * 1e-6 + cost.output_tokens * 1e-5)

    def slow(messages):
        time.sleep(0.3)
        return busy(messages)

    state = attempt(scripted(slow), tmp_path / "time", seconds=0.5)
    assert state.exit is Exit.TIME_LIMIT and state.steps <= 2


def test_a_runs_budget_stops_the_run_and_more_of_it_goes_on(tmp_path):
    run = Run(Llm(scripted(busy), LlmOptions(**QUICK, steps=6, run_cost_usd=0.002)))
    run.author.begin([])
    with pytest.raises(RunLimitReached, match="raise the limit"):
        run.attempt(tmp_path / "first")
    stopped = run.last
    assert stopped.exit is Exit.RUNNING and 0 < stopped.steps < 6
    richer = Run(Llm(scripted(busy), LlmOptions(**QUICK, steps=6, run_cost_usd=1.0)))
    richer.author.begin(run.rows[-1:])
    assert richer.author.identity == run.author.identity
    done = richer.attempt(tmp_path / "second", run.rows[-1])
    assert done.exit is Exit.STEP_LIMIT and done.steps == 6
    assert richer.author.budget.cost_usd == pytest.approx(done.cost_usd)


def test_an_unknown_price_cannot_be_limited(tmp_path):
    assert attempt(in_turn(SUBMIT), tmp_path / "a", price=None).cost_usd is None
    with pytest.raises(PassNetError, match="price"):
        attempt(in_turn(SUBMIT), tmp_path / "b", price=None, cost_usd=1.0)


def test_an_attempt_goes_on_from_any_save_without_asking_again(tmp_path):
    asked = []

    def script(messages):
        asked.append(len(messages))
        return NOTE if len(messages) < 4 else Reply([("write_file", {"name": "b.py", "content": f"{len(messages)}"})])

    options = LlmOptions(**QUICK, steps=4)
    whole = Run(Llm(scripted(script), options))
    expected = whole.attempt(tmp_path / "whole")
    assert asked == [1, 3, 5, 7] and len(whole.rows) == 9  # each answer, each round of tools, the end
    for number, row in enumerate(whole.rows):
        asked.clear()
        state = Run(Llm(scripted(script), options)).attempt(tmp_path / f"{number}", row) if number < 8 else expected
        assert len(asked) == 4 - row["steps"]
        assert (state.exit, state.steps, state.files) == (expected.exit, expected.steps, expected.files)
        assert [m.kind for m in state.messages] == [m.kind for m in expected.messages]
        assert state.seconds >= row["seconds"]


def test_a_finished_attempt_is_not_run_again(tmp_path):
    first = Run(Llm(in_turn(NOTE, Reply(text="?")), LlmOptions(**QUICK)))
    first.attempt(tmp_path / "first")

    def unexpected(messages):
        raise AssertionError("asked again")

    again = Run(Llm(scripted(unexpected), LlmOptions(**QUICK)))
    again.author.attempt(SAMPLE, tmp_path / "again", _finished(first))
    assert again.rows == [] and (tmp_path / "again" / "a.py").read_text() == "x = 1\n"


def _finished(run):
    from agent.author import Attempt

    return Attempt(1, "cpu", run.measure, run.rows.append, run.rows[-1], run.said.append)


def test_every_saved_row_fits_the_table(tmp_path):
    run = Run(Llm(in_turn(NOTE, Reply(text="?")), LlmOptions(**QUICK)))
    run.attempt(tmp_path / "pass")
    missing = {"run", "sample", "attempt", "task_family", "task_split"}
    assert all(set(row) == set(TRAJECTORIES.names) - missing for row in run.rows)


@settings(max_examples=25)
@given(
    files=st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=20), max_size=3),
    scores=st.lists(st.floats(0, 10), max_size=3),
    cost=st.none() | st.floats(0, 10),
    exit_status=st.sampled_from(Exit),
)
def test_a_state_survives_its_row(files, scores, cost, exit_status):
    state = State(files=files, scores=scores, cost_usd=cost, exit=exit_status)
    assert State.from_row(state.to_row()) == state


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"steps": 0}, "steps"),
        ({"cost_usd": float("nan")}, "cost_usd"),
        ({"price": [1.0]}, "price"),
        ({"base_url": "https://me:password@host/v1"}, "environment"),
        ({"base_url": "file:///etc/passwd"}, "http"),
        ({"speed": 3}, "no option 'speed'"),
    ],
)
def test_options_that_cannot_be_are_named(options, said):
    with pytest.raises(PassNetError, match=said):
        LlmOptions.from_dict(options)


def test_models_by_id(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none-needed")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none-needed")
    for name in ("openai:gpt-5.5", "openai-chat:gpt-5", "anthropic:claude-sonnet-5"):
        writer = author("llm", name)
        assert writer.measures and writer.identity["model"] == writer.model_name == name
    local = LlmOptions(base_url="http://127.0.0.1:1/v1")
    for name in ("my-model", "org/model:8b", "anthropic:claude-sonnet-5"):
        assert author("llm", name, local).identity["model"] == name
    for name, said in (("my-model", "base URL"), ("nobody:model", "nobody"), (None, "--model")):
        with pytest.raises(PassNetError, match=said):
            author("llm", name)
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    with pytest.raises(PassNetError, match="ANTHROPIC_API_KEY"):
        author("llm", "anthropic:claude-sonnet-5")


def test_a_task_on_which_eager_fails_is_described_without_times():
    def given(name: str, *shape: int) -> Input:
        return Input(name, "input", "float32", shape, (1,) * len(shape), mean=0.0, std=1.0)

    op = Op("function", "torch.nn.functional.batch_norm", (Ref(0), Ref(1), Ref(2)), {"training": True})
    one_value = (given("in_0", 1, 3), given("in_1", 3), given("in_2", 3))
    variant = Variant("sole_op", Graph(3, (op,), (Ref(3),)), one_value, ())
    assert "cannot be timed" in describe_times(variant, "cpu") and "ValueError" in describe_times(variant, "cpu")
