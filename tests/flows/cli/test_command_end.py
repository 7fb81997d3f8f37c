"""How the process of a command ends: what its caller sees of it, though nothing is taken apart."""

import json
import os
import subprocess
import sys
from typing import Any

import click
import pytest
from click.testing import CliRunner

from flows.cli.main import Group
from flows.cli.options import emit

PROGRAM = """
import atexit, sys, threading, time
import flows.cli.main as cli

def late():
    time.sleep(0.2)
    sys.stdout.write("thread ")

def done():
    atexit.register(sys.stdout.write, "atexit ")
    threading.Thread(target=late).start()
    ENDING

cli.main = done
cli.run()
"""


def _ended(ending: str, **streams: Any) -> subprocess.CompletedProcess[str]:
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    program = PROGRAM.replace("ENDING", ending)
    return subprocess.run([sys.executable, "-c", program], text=True, env=buffered, stderr=subprocess.PIPE, **streams)


@pytest.mark.parametrize(
    ("ending", "status", "said"),
    [
        ("return", 0, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit('words')", 1, "words\n"),
        ("raise ValueError('unforeseen')", 1, "ValueError: unforeseen\n"),
    ],
)
def test_status_and_output_are_those_of_any_process(ending, status, said):
    ended = _ended(ending, stdout=subprocess.PIPE)
    assert (ended.returncode, ended.stdout) == (status, "thread atexit "), ended.stderr
    assert ended.stderr.endswith(said) and bool(ended.stderr) == bool(said)


def test_output_that_cannot_be_written_is_a_failure():
    with open("/dev/full", "w") as full:
        assert _ended("return", stdout=full).returncode == 120  # Python's own status


def test_an_interrupted_command_says_how_to_go_on():
    @click.group(cls=Group)
    def group() -> None: ...

    @group.command()
    @click.option("--rerun", is_flag=True)
    def evaluate(rerun: bool) -> None:
        raise KeyboardInterrupt

    for arguments, how in (
        (["evaluate"], "again to go on"),
        (["evaluate", "--rerun"], "again without --rerun to go on"),
    ):
        done = CliRunner().invoke(group, arguments)
        assert done.exit_code == 130 and f"run the same command {how} where it stopped" in done.stderr


def test_a_character_that_the_terminal_lacks_is_no_failure() -> None:
    program = "import flows.cli.main as cli\ncli.main = lambda: cli.click.echo('v1 \\u2192 v2')\ncli.run()"
    latin = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    ended = subprocess.run([sys.executable, "-c", program], env=latin, capture_output=True)
    assert (ended.returncode, ended.stdout) == (0, b"v1 ? v2\n"), ended.stderr


def test_an_answer_is_json_whatever_was_measured(capsys: pytest.CaptureFixture) -> None:
    def refused(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    emit({"errors": [float("nan"), float("inf"), 1.5], "name": "a"}, True, str)
    found = json.loads(capsys.readouterr().out, parse_constant=refused)
    assert found == {"errors": [None, None, 1.5], "name": "a"}
