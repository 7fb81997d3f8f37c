"""Two evaluations of one run in one data directory: the second waits, and goes on with what the first has finished."""

from pathlib import Path
from threading import Thread

from agent.author import Baseline
from agent.run.opening import alone
from passbench.settings import Settings
from tests.passbench.samples import add_relu_sample

SAMPLES = [add_relu_sample((3, 40))]


def _run(author: str, root: Path) -> tuple:
    return Baseline(author, author), SAMPLES, 1, "cpu", Settings(), root


def test_a_second_evaluation_of_a_run_waits_and_another_runs_does_not(tmp_path: Path) -> None:
    said: list[str] = []
    began: list[str] = []

    def evaluation(author: str) -> None:
        with alone(*_run(author, tmp_path), say=lambda line, *_, **__: said.append(line)):
            began.append(author)

    with alone(*_run("eager", tmp_path)):
        threads = [Thread(target=evaluation, args=(author,)) for author in ("eager", "inductor")]
        for thread in threads:
            thread.start()
        threads[1].join(20)
        threads[0].join(0.3)
        assert began == ["inductor"]
        assert len(said) == 1 and said[0].startswith("another evaluation works on eager-")
    threads[0].join(20)
    assert began == ["inductor", "eager"]
