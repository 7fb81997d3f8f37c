"""Two builds in one data directory: the second waits, and says why nothing happens."""

import logging
from pathlib import Path
from threading import Thread

from flows.build.subgraphs import alone


def test_a_second_build_waits_for_the_first_and_says_so(tmp_path: Path, caplog) -> None:
    began: list[str] = []

    def second() -> None:
        with alone(tmp_path):
            began.append("second")

    with caplog.at_level(logging.INFO), alone(tmp_path):
        thread = Thread(target=second)
        thread.start()
        thread.join(0.3)
        assert not began
        assert f"another build works in {tmp_path}" in caplog.text
    thread.join()
    assert began == ["second"]
