"""One interpreter process for all tests of the authors."""

import pytest

from tests.agent.support import Interpreter


@pytest.fixture(scope="session")
def interpreter():
    """Runs passes under the Triton interpreter."""
    process = Interpreter()
    yield process
    process.close()
