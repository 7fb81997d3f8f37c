"""Events of stages: what listeners are told, and what a line says."""

from flows.progress import Progress, RunStage, listening


def test_a_stage_tells_its_listeners_each_piece_of_work() -> None:
    told: list[Progress] = []
    with listening(told.append):
        stage = RunStage("vary", 4, done=1, work=10.0, number=4, of=5)
        stage.advance("300 rows", work=9.0)
        stage.advance("20 rows", work=0.5)
        stage.advance("none", work=0.5)
    assert [(event.done, event.total, event.text) for event in told] == [
        (1, 4, ""), (2, 4, "300 rows"), (3, 4, "20 rows"), (4, 4, "none")
    ]  # fmt: skip
    assert {(event.stage, event.number, event.of) for event in told} == {("vary", 4, 5)}
    before, much, little, end = (event.seconds_left for event in told)
    assert before is None and end == 0
    assert much > 0 and little >= 0


def test_what_is_left_is_told_by_the_size_of_the_work(monkeypatch) -> None:
    seconds = iter((0.0, 90.0))
    monkeypatch.setattr("time.monotonic", lambda: next(seconds))
    told: list[Progress] = []
    with listening(told.append):
        RunStage("cut", 3, work=10.0).advance("the longest", work=9.0)
    assert told[-1].seconds_left == 10.0
    assert told[-1].line == "cut 1/3: the longest; about 10 s left"


def test_listeners_are_those_of_the_innermost_block(caplog) -> None:
    outer: list[Progress] = []
    inner: list[Progress] = []
    with caplog.at_level("INFO", logger="passnet"):
        with listening(outer.append):
            with listening(inner.append):
                RunStage("trace", 1)
            RunStage("trace", 2)
        RunStage("trace", 3).advance()
    assert [event.total for event in inner] == [1]
    assert [event.total for event in outer] == [2]
    assert [record.message.partition(";")[0] for record in caplog.records] == ["trace 0/3", "trace 1/3"]
