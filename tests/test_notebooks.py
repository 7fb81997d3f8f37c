"""Every notebook runs from top to bottom, on a small version made here."""

import ast
import json
import os
from pathlib import Path

import pytest

from tests.support.scored import scored

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SAYS = {"explore_version": "class GraphModule", "compare_runs": "better", "walk_a_sample": "statuses: ok, ok"}
"""What each prints or shows in the end."""


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return scored(tmp_path_factory.mktemp("notebooks") / "data").root


def cells(notebook: Path, kind: str = "code") -> list[str]:
    found = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == kind]


def shown(source: str) -> str:
    """The cell, with its last expression printed, as a notebook shows it."""
    tree = ast.parse(source)
    if isinstance(tree.body[-1], ast.Expr):
        tree.body[-1] = ast.parse(f"print({ast.unparse(tree.body[-1].value)})").body[0]
    return ast.unparse(tree)


def test_each_is_expected():
    assert {notebook.stem for notebook in NOTEBOOKS} == SAYS.keys()


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(warm_forks, notebook, data, tmp_path):
    source = "\n".join(shown(cell) for cell in cells(notebook))
    environment = os.environ | {"PASSNET_DATA": str(data), "HF_HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    done = warm_forks.run(source, environment=environment, directory=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    assert SAYS[notebook.stem] in done.stdout, done.stdout


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_kept_without_output_and_begins_with_what_it_is(notebook):
    document = json.loads(notebook.read_text(encoding="utf-8"))
    assert not any(cell.get("outputs") for cell in document["cells"])
    assert cells(notebook, "markdown")[0].startswith("# ")
