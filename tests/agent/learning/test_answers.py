"""Passes in the texts of models: files behind their names, whatever else is there, in linear time."""

import time

import pytest

from agent.learning.answers import answer_of, files_of
from passbench.contract import NAMES_FILE

A, B = "`a.py`:\n```python\nx = 1\n```\n", "`b.py`\n\n```\ny = 2\n```\n"


@pytest.mark.parametrize(
    ("answer", "files", "names"),
    [
        (A + B, {"a.py": "x = 1\n", "b.py": "y = 2\n"}, '["a", "b"]'),
        (f'{B}{A}`{NAMES_FILE}`: ["a"]', {"a.py": "x = 1\n", "b.py": "y = 2\n"}, '["a"]'),
        (f'{A}`{NAMES_FILE}`:\n```json\n["a"]\n```\n', {"a.py": "x = 1\n"}, '["a"]'),
        ("```json\n[1]\n```\n```py\nz = 3\n```", {"fuse.py": "z = 3\n"}, '["fuse"]'),
        (f"```\nshell\n```\nThe file `a.py`:\n```python\nx = 1\n```  \n{A}", {"a.py": "x = 1\n"}, '["a"]'),
        ("`a.py`:\nsome words\n```python\nx = 1\n```", {"fuse.py": "x = 1\n"}, '["fuse"]'),
        ("`a.py`:\n```python\n```", {"a.py": ""}, '["a"]'),
    ],
)
def test_files_in_an_answer(answer: str, files: dict[str, str], names: str) -> None:
    assert files_of(answer) == files | {NAMES_FILE: names + "\n"}


@pytest.mark.parametrize("answer", ["", "words", "`a.py`:\n```python\nx = 1", "```\nx\n```"])
def test_answers_without_files(answer: str) -> None:
    assert files_of(answer) == {}


def test_an_answer_is_read_as_it_was_written() -> None:
    files = {"a.py": "x = 1\n", "b.py": 'y = """\n`c.py`:\n"""\n', NAMES_FILE: '["b", "a"]\n'}
    assert files_of(answer_of(files, "Because.")) == files


@pytest.mark.parametrize(
    "piece", ["`a.py`:\n```python\n", f"{NAMES_FILE}: [", "```python\n", "`a.py`", "```\n", "`", "\n"]
)
def test_a_model_that_repeats_itself_costs_no_time(piece: str) -> None:
    begin = time.process_time()
    files_of(A + piece * (400_000 // len(piece)))
    assert time.process_time() - begin < 2
