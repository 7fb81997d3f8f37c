"""The author `llm` against an OpenAI-compatible server on loopback: faults, back-off, and keys that stay hidden."""

import json
import socket
import time

import pytest

from agent.llm.author import Llm
from agent.llm.options import LlmOptions
from agent.llm.redact import HIDDEN, redacted, secrets_of
from agent.llm.state import Exit, State
from storage.errors import PassNetError
from tests.agent.llm.llm_support import Run
from tests.support.llm_server import LlmServer, Reply, steps

KEY = "sk-a-key-that-nobody-may-see-0123456789"
WORK = steps(
    Reply([("write_file", {"name": "a.py", "content": "x = 1\n"}), ("view_files", {})]),
    Reply(text="Thinking."),
    Reply([("submit", {"now": True})]),
    Reply([("view_files", {"name": "a.py"})]),
)


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def run_on(server: LlmServer, **options) -> Run:
    chosen = {"base_url": server.url, "backoff": 0.01, "price": (1.0, 10.0), "steps": 4, "tries": 3, **options}
    return Run(Llm("my-model", LlmOptions(**chosen)))


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_failed_calls_are_tried_again_and_are_no_steps(tmp_path, stream):
    faults = [429, 500, None, "garbage", 503, None, "broken" if stream else 529, "cut" if stream else 408]
    with LlmServer(WORK, faults) as server:
        run = run_on(server, stream=stream)
        state = run.attempt(tmp_path / "pass")
    assert state.exit is Exit.STEP_LIMIT
    assert (state.steps, state.tool_calls, state.failed_calls, server.failed) == (4, 4, 6, 6)
    assert len(server.requests) == 4, "no answer was asked for twice"
    assert [bool(r.get("stream")) for r in server.requests] == [stream] * 4
    sent, made = (sum(json.loads(m)) for m in _tokens(server))
    assert (state.input_tokens, state.output_tokens) == (sent, made)
    assert state.cost_usd == pytest.approx(sent / 1e6 + made / 1e5)
    assert state.files == {"a.py": "x = 1\n"}
    assert any("try 2 of 3" in text for text in run.said)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_anthropics_api(tmp_path, monkeypatch, stream):
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    with LlmServer(WORK, [529]) as server:
        options = LlmOptions(base_url=server.url.removesuffix("/v1"), backoff=0.01, steps=4, stream=stream)
        state = Run(Llm("anthropic:claude-sonnet-5", options)).attempt(tmp_path / "pass")
    assert (state.exit, state.steps, state.tool_calls, state.failed_calls) == (Exit.STEP_LIMIT, 4, 4, 1)
    assert state.files == {"a.py": "x = 1\n"} and state.cost_usd > 0
    assert [bool(r.get("stream")) for r in server.requests] == [stream] * 4


def _tokens(server: LlmServer) -> tuple[str, str]:
    from tests.support.llm_server import _usage

    used = [_usage(body, WORK(body["messages"])) for body in server.requests]
    return json.dumps([u["prompt_tokens"] for u in used]), json.dumps([u["completion_tokens"] for u in used])


def test_a_stalled_provider_is_given_up_and_asked_again(tmp_path):
    with LlmServer(WORK, ["stall"]) as server:
        state = run_on(server, stall_seconds=0.3).attempt(tmp_path / "pass")
    assert (state.steps, state.failed_calls) == (4, 1)


def test_time_limits_hold_while_a_provider_is_silent(tmp_path):
    with LlmServer(WORK, ["stall"]) as server:
        state = run_on(server, seconds=1.0, stall_seconds=10_000).attempt(tmp_path / "pass")
    assert (state.exit, state.steps) == (Exit.TIME_LIMIT, 0)


def test_retry_after_is_honoured(tmp_path):
    with LlmServer(WORK, [429], retry_after="1") as server:
        run = run_on(server)
        begin = time.monotonic()
        run.attempt(tmp_path / "pass")
    assert time.monotonic() - begin >= 1 and any("in 1.0 s" in text for text in run.said)


@pytest.mark.parametrize("asked", ["43200", "9" * 30])
def test_a_provider_that_asks_to_wait_for_hours_stops_the_run_which_goes_on_later(tmp_path, asked):
    with LlmServer(WORK, [None, 429], retry_after=asked) as server:
        run = run_on(server)
        with pytest.raises(PassNetError, match=r"asks to wait .* run the same command again"):
            run.attempt(tmp_path / "first")
        assert run.last.exit is Exit.PROVIDER_FAILED and run.last.steps == 1
        assert run.attempt(tmp_path / "second", run.rows[-1]).exit is Exit.STEP_LIMIT


def test_half_a_character_is_no_end_of_the_run(tmp_path):
    halves = steps(Reply(text="half \ud83d"), Reply([("write_file", {"name": "a.py", "content": "# \ud83d\ude00\n"})]))
    with LlmServer(halves) as server:
        state = run_on(server, steps=2).attempt(tmp_path / "pass")
    assert (state.exit, state.files) == (Exit.STEP_LIMIT, {"a.py": "# \U0001f600\n"})
    assert "half \ufffd" in json.loads(state.to_row()["messages"])[1]["parts"][0]["content"]


def test_without_an_answer_the_run_stops_and_goes_on_later(tmp_path):
    with LlmServer(WORK, [None, 500, 500, 500]) as server:
        run = run_on(server)
        with pytest.raises(PassNetError, match="run the same command again"):
            run.attempt(tmp_path / "first")
        stopped = run.last
        assert stopped.exit is Exit.PROVIDER_FAILED and stopped.steps == 1 and stopped.failed_calls == 3
        state = run.attempt(tmp_path / "second", run.rows[-1])
        assert state.exit is Exit.STEP_LIMIT and len(server.requests) == 4
        server.faults = [500] * 3
        assert run.attempt(tmp_path / "third", run.rows[1] | {"exit_status": "provider_failed"}).exit is (
            Exit.PROVIDER_FAILED
        ), "failing twice at the same step ends this attempt and no other"


@pytest.mark.parametrize("status", [401, 403])
def test_what_the_caller_must_put_right_stops_the_run_at_once(tmp_path, status):
    with LlmServer(WORK, [status]) as server, pytest.raises(PassNetError, match="key") as caught:
        run_on(server).attempt(tmp_path / "pass")
    assert server.failed == 1 and KEY not in str(caught.value)


def closed_port() -> str:
    """The address of a port on which nothing listens."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{place.getsockname()[1]}/v1"


@pytest.mark.parametrize(
    ("address", "why"),
    [
        (closed_port(), "Connection refused"),
        (f"{closed_port()}".replace("http", "https"), "Connection refused"),
        ("http://nobody.invalid/v1", "Name or service not known|name resolution"),
    ],
    ids=["refused", "refused with TLS", "no such host"],
)
def test_a_provider_that_is_not_reached_ends_the_run_after_few_tries(tmp_path, address, why):
    run = Run(Llm("my-model", LlmOptions(base_url=address, backoff=0.01)))
    with pytest.raises(PassNetError, match=f"{address} is not reached .3 tries, the last: no connection: ({why})"):
        run.attempt(tmp_path / "pass")
    assert run.last.failed_calls == 3 and run.last.exit is Exit.PROVIDER_FAILED
    assert address.rpartition(":")[2] not in run.last.error, "an address is not published"


def test_a_provider_that_has_answered_may_start_again(tmp_path):
    with LlmServer(WORK, [None]) as server:
        run = run_on(server, tries=5)
        run.author.budget.add(0.0)
    with pytest.raises(PassNetError, match=r"no answer from the provider .*5 tries, the last: no connection"):
        run.attempt(tmp_path / "pass")


def test_a_wrong_path_names_the_address(tmp_path):
    with LlmServer(WORK, [404]) as server, pytest.raises(PassNetError, match=f"{server.url} knows no such model.*/v1"):
        run_on(server).attempt(tmp_path / "pass")
    assert server.failed == 1


def test_a_missing_key_is_named_without_advice_for_programmers(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(PassNetError) as caught:
        Llm("openai:gpt-5.5")
    assert str(caught.value) == "cannot use model 'openai:gpt-5.5': set the environment variable OPENAI_API_KEY"


def test_an_empty_key_is_a_missing_one(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "")
    with pytest.raises(PassNetError, match=r"cannot use model 'openai:gpt-5.5': .*OPENAI_API_KEY"):
        Llm("openai:gpt-5.5")


def test_pydantic_ais_test_model_is_no_model():
    with pytest.raises(PassNetError, match="no model of a provider; ids look like"):
        Llm("test")


@pytest.mark.parametrize("limit", ["cost_usd", "run_cost_usd"])
def test_a_limit_of_money_needs_a_price_before_anything_is_paid(limit):
    with pytest.raises(PassNetError, match="--price"):
        Llm("my-model", LlmOptions(base_url="http://127.0.0.1/v1", **{limit: 1.0}))
    Llm("my-model", LlmOptions(base_url="http://127.0.0.1/v1", price=(1.0, 2.0), **{limit: 1.0}))
    Llm("openai:gpt-5.5", LlmOptions(**{limit: 1.0}))


def test_a_refused_conversation_ends_its_attempt_alone(tmp_path):
    with LlmServer(WORK, [None, 400]) as server:
        state = run_on(server).attempt(tmp_path / "pass")
    assert (state.exit, state.steps) == (Exit.REFUSED, 1) and "400" in state.error
    with LlmServer(WORK, [400]) as server, pytest.raises(PassNetError, match="first call"):
        run_on(server).attempt(tmp_path / "other")


def test_a_key_appears_nowhere(tmp_path, monkeypatch, caplog, capfd):
    monkeypatch.setenv("PROXY_ADDRESS", "http://user:another-secret@proxy:80/")
    leak = f"{KEY} another-secret"
    talk = steps(
        Reply([("write_file", {"name": "a.py", "content": f"key = '{leak}'\n"})], text=f"I know {leak}"),
        Reply([("view_files", {}), ("nothing", f'{{"{leak}": 1')], text="?"),
    )
    with LlmServer(talk, [429, None, 500, None, 400]) as server:
        run = run_on(server)
        state = run.attempt(tmp_path / "pass")
        assert server.keys[0] == f"Bearer {KEY}"
    assert state.exit is Exit.REFUSED
    written = [json.dumps(row) for row in run.rows] + [p.read_text() for p in tmp_path.rglob("*") if p.is_file()]
    everything = "\n".join([*written, *run.said, caplog.text, *capfd.readouterr()])
    assert KEY not in everything and "another-secret" not in everything
    assert HIDDEN in state.error and HIDDEN in state.files["a.py"]
    assert server.url not in everything


def test_redaction_keeps_a_messages_structure(monkeypatch):
    secrets = secrets_of({"MY_API_KEY": "response", "SHORT_TOKEN": "abc", "HOME": "/home/response"})
    assert secrets == ("response",)
    value = {"kind": "response", "parts": ["the response", {"response": 1}]}
    assert redacted(value, secrets) == {"kind": "response", "parts": [f"the {HIDDEN}", {HIDDEN: 1}]}
    assert State.from_row(State().to_row()) == State()
