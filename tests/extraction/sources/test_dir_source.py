"""Directories as a source of graphs: found, hashed by what they hold, and there without tracing."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from extraction.analysis.propagate import Propagated, propagate
from extraction.failures import ModelError
from extraction.sources import graph_directories
from extraction.sources.catalog import parse_entry
from extraction.sources.spec import spec_of
from storage.layout.export import graph_files
from storage.records import Variant
from tests.support.graphs import corpus


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A whole model in GraphNet's layout, with indices whose range its metadata does not say."""
    traced = corpus()[2]
    inputs = [replace(i, low=None, high=None) if i.dtype == "int64" else i for i in traced.inputs]
    directory = tmp_path / "models" / "embedder"
    directory.mkdir(parents=True)
    for name, text in graph_files(Variant("fusible", traced.graph, tuple(inputs), ()), "embedder").items():
        (directory / name).write_text(text)
    return directory


def test_the_graph_of_a_directory_needs_no_tracing(model: Path) -> None:
    traced = corpus()[2]
    (graph,) = graph_directories.graphs(graph_directories.config(str(model)), "dir:embedder")
    assert graph.graph == traced.graph and (graph.model, graph.index) == ("dir:embedder", 0)
    assert [(i.role, i.dtype, i.shape, i.stride) for i in graph.inputs] == [
        (i.role, i.dtype, i.shape, i.stride) for i in traced.inputs
    ]
    assert all(i.low is not None or i.std is not None for i in graph.inputs)
    tokens = next(i for i in graph.inputs if i.dtype == "int64")
    assert 0 <= tokens.low <= tokens.high < 11  # rows of the table that they index
    assert isinstance(propagate(graph.graph, graph.inputs), Propagated)


def test_a_spec_follows_what_the_files_hold(model: Path) -> None:
    entry = parse_entry(f"dir:{model}")
    spec = spec_of(entry)
    assert spec_of(entry) == spec and spec.source == "dir"
    (model / "model.py").write_text((model / "model.py").read_text() + "\n")
    assert spec_of(entry).config_hash != spec.config_hash
    with pytest.raises(ModelError, match="has changed since"):
        graph_directories.graphs(spec.fields, entry.text)


def test_a_path_is_the_same_wherever_a_worker_is(model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(model.parent)
    spec = spec_of(parse_entry("dir:embedder"))
    monkeypatch.chdir(tmp_path)
    (graph,) = graph_directories.graphs(spec.fields, "dir:embedder")
    assert graph.model == "dir:embedder"


def test_directories_below_a_root(model: Path) -> None:
    root = model.parent
    shutil.copytree(model, root / "sample" / "graphs" / "float32" / "0")
    (root / "sample" / "graph_list.txt").write_text("float32/0\n")
    assert list(graph_directories.directories(root)) == [model, root / "sample" / "graphs" / "float32" / "0"]


@pytest.mark.parametrize(
    ("name", "text", "category"),
    [
        ("model.py", None, "not_found"),
        ("weight_meta.py", b"\xff", "config"),
        ("weight_meta.py", b"", "graph_break"),
        ("model.py", b"import os", "graph_break"),
        ("model.py", b"def forward(self): return 1", "graph_break"),
    ],
)
def test_what_is_wrong_has_a_category(model: Path, name: str, text: bytes | None, category: str) -> None:
    (model / name).unlink()
    if text is not None:
        (model / name).write_bytes(text)
    with pytest.raises(ModelError) as raised:
        graph_directories.graphs(graph_directories.config(str(model)), "dir:m")
    assert raised.value.category == category
