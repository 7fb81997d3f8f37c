"""Directories in the layout: found in a tree, exported and read again, and not trusted."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dedup.hashes import identify
from storage.errors import PassNetError
from storage.graph.as_fx import to_module
from storage.graph.record import cut
from storage.layout.errors import LayoutError
from storage.layout.export import variant_path, write_sample
from storage.layout.read import MAX_BYTES, find, graph_directory, graph_paths, is_sample, read_graph, read_text
from storage.layout.variant import category_of, variant_of
from storage.records import Sample, Source, Variant
from tests.support.graphs import corpus, drawn
from tests.support.layout_sources import SOURCES


def _variants() -> list[Variant]:
    """Halves of real graphs, each twice: as traced, and in float64 as if symbols had given its sizes."""
    variants = []
    for traced in corpus():
        piece = cut(traced.graph, 0, len(traced.graph.ops) // 2)
        inputs = [traced.inputs[n] for n in piece.inputs if n < traced.graph.inputs]
        source = (Source("timm:a", 3, 9), Source("timm:b#1", 0, 6))
        plain = Variant("typical", piece.graph, tuple(inputs), (), source, kernels=2, occurrences=5)
        symbols = {f"dim{n}": size for n, size in enumerate(inputs[0].shape)}
        named = replace(inputs[0], symbolic_shape=tuple(symbols), symbolic_stride=tuple(map(str, inputs[0].stride)))
        wide = [replace(i, dtype=i.dtype.replace("float32", "float64")) for i in (named, *inputs[1:])]
        variants += [identify(plain), identify(replace(plain, inputs=tuple(wide), symbols=symbols))]
    return variants


@pytest.fixture(scope="module")
def sample() -> Sample:
    variants = _variants()
    return Sample("typical-0123", variants[0].family_hash, "typical", "eval", tuple(variants))


@pytest.fixture
def exported(sample: Sample, tmp_path: Path) -> Path:
    write_sample(sample, tmp_path / "sample", {"sorted_output_pass_rule_names.json": '["a"]', "a.py": ""})
    return tmp_path / "sample"


def test_an_export_is_read_as_the_same_variants(sample: Sample, exported: Path) -> None:
    assert is_sample(exported)
    paths = graph_paths(exported)
    assert paths == [variant_path(variant) for variant in sample.variants]
    for path, variant in zip(paths, sample.variants, strict=True):
        found = read_graph(graph_directory(exported, path))
        assert identify(variant_of(found, exported / path, "unsaid")) == variant
    assert sorted(p.name for p in (exported / "pass_dir").iterdir()) == ["a.py", "sorted_output_pass_rule_names.json"]


def test_an_exported_file_is_a_program_that_computes_the_same(sample: Sample, exported: Path) -> None:
    for path, variant in zip(graph_paths(exported), sample.variants, strict=True):
        text = (exported / "graphs" / path / "model.py").read_text()
        namespace: dict = {}
        exec(compile(text, "model.py", "exec"), namespace)  # PassNet's own rendering of this test's graphs
        inputs = drawn(variant.inputs)
        with torch.no_grad():
            expected = to_module(variant.graph, "cpu").forward(*(t.clone() for t in inputs))
            given = namespace["GraphModule"]()(*(t.clone() for t in inputs))
        assert all(map(torch.equal, given, expected)) and len(given) == len(expected) > 0


def test_the_metadata_files_run_as_python_too(exported: Path) -> None:
    for name in ("weight_meta.py", "input_meta.py", "input_tensor_constraints.py"):
        for path in sorted(exported.rglob(name)):
            exec(compile(path.read_text(), name, "exec"), {})  # PassNet's own files


def test_a_sample_is_written_whole_or_not_at_all(sample: Sample, exported: Path, tmp_path: Path) -> None:
    with pytest.raises(PassNetError, match="choose a directory that is not there yet"):
        write_sample(sample, exported)
    with pytest.raises(PassNetError, match="no plain name"):
        write_sample(sample, tmp_path / "other", {"../a.py": ""})
    with pytest.raises(PassNetError, match="cannot write"):
        write_sample(sample, tmp_path / ("x" * 300))
    assert [path.name for path in tmp_path.iterdir()] == ["sample"]


def _model(directory: Path, name: str = "clean-ups and aliases") -> Path:
    directory.mkdir(parents=True)
    (directory / "model.py").write_text(SOURCES[name][0])
    names = ("L_x_", "L_self_modules_fc_parameters_weight_")
    classes = ""
    for argument, tensor in zip(names, SOURCES[name][1], strict=True):
        classes += f"class {argument}:\n    name = {argument!r}\n    shape = {list(tensor.shape)}\n"
        classes += "    dtype = 'torch.float32'\n    mean = 0\n    std = 1\n\n\n"
    (directory / "weight_meta.py").write_text(classes)
    return directory


def test_a_tree_is_searched_in_order(exported: Path, tmp_path: Path) -> None:
    _model(tmp_path / "z" / "model")
    (tmp_path / "a" / "graphs" / "one").mkdir(parents=True)
    (tmp_path / "empty" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(exported)
    found = [(f.kind, f.path.relative_to(tmp_path).as_posix()) for f in find(tmp_path)]
    assert found == [("sample", "a"), ("sample", "sample"), ("model", "z/model")]
    assert [f.path for f in find(exported)] == [exported]
    with pytest.raises(LayoutError, match="no such directory"):
        next(find(tmp_path / "nowhere"))


def test_a_name_that_no_table_can_hold_is_unreadable(exported: Path, tmp_path: Path) -> None:
    os.mkdir(os.fsencode(tmp_path) + b"/bad\xff")
    assert sorted(found.kind for found in find(tmp_path)) == ["sample", "unreadable"]
    for found in find(tmp_path):
        str(found.path).encode()
    os.makedirs(os.fsencode(tmp_path) + b"/s/graphs/bad\xff")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/s/graphs/bad\xff"), "model.py").touch()
    with pytest.raises(LayoutError, match="not UTF-8") as raised:
        graph_paths(tmp_path / "s")
    str(raised.value).encode()


def test_a_list_with_a_name_that_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match="too long"):
        graph_directory(tmp_path, "x" * 300)


def test_a_very_deep_tree_is_searched(tmp_path: Path) -> None:
    make = "import os\nfor _ in range(1500):\n os.mkdir('d')\n os.chdir('d')\nopen('model.py', 'w')"
    try:
        subprocess.run([sys.executable, "-c", make], cwd=tmp_path, check=True)
        assert [f.kind for f in find(tmp_path)] == ["model"]
        (tmp_path / "d").rename(tmp_path / "graphs")
        assert graph_paths(tmp_path) == ["/".join("d" * 1499)]
    finally:
        subprocess.run(
            ["rm", "-rf", tmp_path / "d", tmp_path / "graphs"], check=True
        )  # Python's own removal gives up at this depth


def test_graphnets_layout(tmp_path: Path) -> None:
    found = read_graph(_model(tmp_path / "model"))
    assert [(i.name, i.role, i.shape) for i in found.inputs] == [
        ("L_x_", "input", (2, 3)),
        ("L_self_modules_fc_parameters_weight_", "parameter", (4, 3)),
    ]
    assert found.graph.op_sequence == ["torch.nn.functional.linear", ".relu"]


def test_a_list_may_name_paths_from_the_sample(tmp_path: Path) -> None:
    model = _model(tmp_path / "sample" / "graphs" / "f32" / "0")
    (tmp_path / "sample" / "graph_list.txt").write_text("# graphs\ngraphs/f32/0\n\nf32/0\nf32/1\n")
    paths = graph_paths(tmp_path / "sample")
    assert paths == ["graphs/f32/0", "f32/0", "f32/1"]
    assert [graph_directory(tmp_path / "sample", p) for p in paths] == [model, model, model.parent / "1"]
    (tmp_path / "sample" / "graph_list.txt").unlink()
    assert graph_paths(tmp_path / "sample") == ["f32/0"]


@pytest.mark.parametrize("path", ["/etc", "../other", "a/../../b", "x" * 2000, "a\0b"])
def test_a_list_does_not_lead_out_of_the_sample(tmp_path: Path, path: str) -> None:
    with pytest.raises(LayoutError, match="leads out of it"):
        graph_directory(tmp_path, path)


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (lambda p: p.unlink(), "missing file"),
        (lambda p: (p.unlink(), p.mkdir()), "unreadable file"),
        (lambda p: (p.unlink(), os.mkfifo(p)), "unreadable file"),
        (lambda p: (p.unlink(), p.symlink_to("/etc/hostname")), "unreadable file"),
        (lambda p: (p.unlink(), p.symlink_to(p.name)), "unreadable file"),
        (lambda p: p.write_bytes(b"\xff\xfe"), "unreadable file"),
        (lambda p: p.write_bytes(b"#" * (MAX_BYTES + 1)), "too large"),
        (lambda p: p.write_text("class"), "syntax"),
        (lambda p: p.write_text("import os"), "construct"),
    ],
)
@pytest.mark.parametrize("name", ["model.py", "weight_meta.py"])
def test_a_bad_file_is_an_error_with_its_cause(tmp_path: Path, name: str, damage: object, cause: str) -> None:
    model = _model(tmp_path / "model")
    damage(model / name)
    with pytest.raises(LayoutError) as raised:
        read_graph(model, tmp_path)
    assert raised.value.cause == cause
    assert raised.value.file == str(model / name)


def test_links_inside_of_the_tree_are_followed(tmp_path: Path) -> None:
    model = _model(tmp_path / "model")
    (model / "model.py").rename(tmp_path / "blob")
    (model / "model.py").symlink_to("../blob")
    assert read_graph(model, tmp_path).graph.ops
    with pytest.raises(LayoutError, match="a link leads out of the tree"):
        read_text(model / "model.py", model)


def test_an_empty_list_and_a_dangling_link_to_it(tmp_path: Path) -> None:
    (tmp_path / "graph_list.txt").write_text("\n")
    with pytest.raises(LayoutError, match="it lists no graph"):
        graph_paths(tmp_path)


@pytest.mark.parametrize(
    ("name", "metadata", "path", "category"),
    [
        ("several results", {}, "x/typical-12/y", "typical"),
        ("several results", {}, "typical_eval/fusible/y", "fusible"),
        ("several results", {"category": "typical"}, "fusible", "typical"),
        ("several results", {}, "atypical", "fusible"),
        ("several results", {"passnet": {"category": "sole_op"}}, "typical", "sole_op"),
        ("several results", {"passnet": {"category": "other"}}, "typical", "typical"),
    ],
)
def test_categories(name: str, metadata: dict, path: str, category: str) -> None:
    from storage.layout.forward import read_forward
    from storage.layout.graph_source import graph_of

    assert category_of(graph_of(read_forward(SOURCES[name][0], "m")), metadata, Path(path)) == category


@pytest.mark.parametrize(
    "own",
    [
        [1],
        {"direction": "sideways"},
        {"kernels": -1},
        {"occurrences": 0},
        {"occurrences": True},
        {"sources": "x"},
        {"sources": [["m", 0]]},
        {"sources": [["m\n", 0, 1]]},
        {"sources": [["m", 0, 1 << 40]]},
    ],
)
def test_bad_metadata_of_our_own_is_refused(sample: Sample, exported: Path, own: object) -> None:
    found = read_graph(graph_directory(exported, graph_paths(exported)[0]))
    with pytest.raises(LayoutError):
        variant_of(replace(found, metadata={"passnet": own}), Path("p"), "s")
    plain = variant_of(replace(found, metadata={}), Path("p"), "s")
    assert plain.sources == (Source("s", 0, len(found.graph.ops)),)
    assert (plain.occurrences, plain.direction, plain.kernels) == (1, "forward", None)
