"""A stage whose code changed gets a new version, or its author says that what it makes stays the same."""

import json
import sys

import pytest

from storage.versions.code_version import CODE_VERSIONS
from tests.code_digests import MODULES, NOTED, _meaning, digest_of

HOW = """the code of the stage {stage!r} has changed since its version {version} was noted.
If it makes something else of the same input now, raise its version in storage/versions/code_version.py.
Then, or if it makes the same, run `python -m tests.code_digests` to note the new digest."""


def test_every_stage_has_its_modules() -> None:
    assert MODULES.keys() == CODE_VERSIONS.keys()


@pytest.mark.parametrize("stage", sorted(MODULES))
def test_a_change_of_code_is_noted(stage: str) -> None:
    noted = json.loads(NOTED.read_text(encoding="utf-8"))
    if noted["python"]["version"] != list(sys.version_info[:2]):
        pytest.skip("syntax trees differ between versions of Python")
    expected = {"version": CODE_VERSIONS[stage], "digest": digest_of(stage)}
    assert noted[stage] == expected, HOW.format(stage=stage, version=noted[stage]["version"])


def test_wording_is_no_change_and_a_constant_is_one() -> None:
    plain = "X = 1\n\ndef f(a):\n    return a + X\n"
    worded = '"""A module."""\n\nX = 1\n"""One."""\n\n\ndef f(a):\n    """Adds."""\n    return a + X  # the sum\n'
    assert _meaning(plain) == _meaning(worded)
    assert _meaning(plain) != _meaning(plain.replace("1", "2"))
