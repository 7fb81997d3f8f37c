"""How a fork that runs a program ends."""

import os
import sys

import pytest

from passbench.workers.fork_end import end_after


def _says():
    print("done")


def _leave(code):
    sys.exit(code)


@pytest.mark.parametrize(
    ("life", "status", "said"),
    [
        (_says, 0, ""),
        (lambda: _leave(None), 0, ""),
        (lambda: _leave(3), 3, ""),
        (lambda: _leave(1 << 70), 255, ""),
        (lambda: _leave("no such file"), 1, "no such file\n"),
        (lambda: os.stat("/nowhere"), 1, "FileNotFoundError"),
        (lambda: sys.stdout.close(), 0, ""),
        (lambda: sys.stderr.close() or os.stat("/nowhere"), 1, ""),
    ],
)
def test_a_fork_ends_as_python_does_and_whatever_its_streams_do(life, status, said, tmp_path):
    pid = os.fork()
    if pid == 0:
        sys.stdout, sys.stderr = ((tmp_path / name).open("w") for name in ("out", "err"))
        end_after(life)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == status
    assert said in (tmp_path / "err").read_text()
    assert (tmp_path / "out").read_text() == ("done\n" if life is _says else "")
