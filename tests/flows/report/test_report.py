"""`passnet report`: a page that loads nothing and says what the results say, with pictures and tables beside it."""

import csv
import json
import re
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.image import imread

from flows.cli.main import main
from flows.report import page
from flows.report.figures import png, violins
from flows.report.graph_drawing import MOST_OPS, draw, layers
from flows.report.rows import gather, labels
from flows.report.tables import (
    by_sample,
    common_leaderboard,
    extremes,
    leaderboard,
    losers,
    losses_by_group,
    losses_by_op,
    worst_variants,
)
from flows.report.write import write_report
from storage.errors import PassNetError
from storage.graph.record import Graph, Op, Ref, refs
from storage.schema import RESULTS
from storage.versions.store import Store
from tests.passbench.samples import spec
from tests.support.graphs import records
from tests.support.scored import HOSTILE, SPEEDUPS, scored

TABLES = (
    "failures inductor_by_group inductor_by_op inductor_worst leaderboard results samples scores trace_failures".split()
)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return scored(tmp_path_factory.mktemp("report") / "data").root


@pytest.fixture(scope="module")
def written(data, tmp_path_factory) -> Path:
    """The directory of a report on all runs, written by the command."""
    out = tmp_path_factory.mktemp("out") / "report"
    done = CliRunner().invoke(main, ["report", "latest", "--out", str(out), "--data", str(data), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"page": str(out / "index.html")}
    return out


class Page(HTMLParser):
    """What a browser would see: tags, what they load, text, and whether they close."""

    VOID = ("meta", "link", "img", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.text: list[str] = []
        self.alts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        given = dict(attributes)
        self.loads += [given[key] for key in ("src", "href", "srcset", "action") if given.get(key)]
        self.alts += [given.get("alt", "")] if tag == "img" else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_loads_nothing_and_shows_everything(written):
    text = (written / "index.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    assert all(each.startswith(("data:", "#")) for each in page.loads)
    assert "script" not in page.tags and "url(" not in text and "@import" not in text
    assert "width=device-width" in text
    said = " ".join(page.text)
    assert HOSTILE in said
    assert all(name in said for name in ("eager", "inductor", "distill", "llm mini"))
    assert all(page.alts) and len(page.alts) == len(list(written.glob("*.png")))
    for link in (each for each in page.loads if each.startswith("#")):
        assert f'id="{link[1:]}"' in text


def test_pictures_and_tables_lie_beside_it(written):
    found = {path.name for path in written.iterdir()}
    graphs = {name for name in found if name.startswith("graph_")}
    assert len(graphs) == 3
    assert found - graphs == {
        "index.html", "es_t.png", "speedups_by_dtype.png", "speedups_by_category.png", "inductor_by_op.png",
        *(f"{name}.csv" for name in TABLES),
    }  # fmt: skip
    for path in written.glob("*.png"):
        pixels = imread(path)
        assert pixels.shape[1] >= 200 and pixels[..., :3].std() > 0.02, f"{path.name} is blank"
    with (written / "leaderboard.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["author"] for line in lines] == ["distill", "eager", "llm mini", "inductor"]
    assert sorted((float(line["AS e2e"]) for line in lines), reverse=True) == [float(line["AS e2e"]) for line in lines]
    with (written / "trace_failures.csv").open(newline="") as file:
        failed = {line["category"]: (line["models"], line["message"]) for line in csv.DictReader(file)}
    assert failed == {"timeout": ("2", "60 s"), "inputs": ("1", "no inputs for")}
    with (written / "failures.csv").open(newline="") as file:
        assert [line["reason"] for line in csv.DictReader(file)] == [HOSTILE]


def test_the_tables_are_those_of_the_results(data):
    material = gather(["latest"], data)
    lines = {line["author"]: line for line in leaderboard(material.scored, labels(material.rows))}
    assert lines["eager"]["AS e2e"] > 1 and lines["inductor"]["fast_1"] == 0
    lost = losers(material.rows)
    assert {r["author"] for r in lost} == {"inductor"}
    groups = {(line["by"], line["group"]): line for line in losses_by_group(lost)}
    assert groups["all", "all"]["slower"] == groups["all", "all"]["hidden"] == 1.0
    assert groups["category, dtype", "fusible float16"]["variants"] == 2
    assert [key[1] for key in groups if key[0] == "length"] == ["1 op", "2 to 4 ops"]
    ops = losses_by_op(lost)
    assert {line["op"] for line in ops} == {"operator.add", "torch.softmax"}, "the others occur in too few variants"
    (worst, *_) = worst_variants(lost, material.rows)
    assert worst["e2e"] == min(r["speedup_e2e"] for r in lost) and worst["by"] == "distill"
    chosen = extremes(by_sample(material.rows), 1)
    assert {line["author"] for line in chosen} == set(labels(material.rows).values()) - {"eager"}
    assert [(line["place"], line["ok"]) for line in chosen if line["author"] == "llm mini"][-1][0] == "worst"


def test_runs_on_different_samples_are_also_compared_on_the_same_ones(data):
    rows = gather(["latest"], data).rows
    assert common_leaderboard(rows) == []
    category = {r["label"]: r["category"] for r in rows}
    fewer = [r for r in rows if r["label"] != "distill" or r["category"] == "fusible"]
    lines = common_leaderboard(fewer)
    assert [line["variants"] for line in lines] == [4] * len(category)
    assert lines[0]["author"] == "distill" and lines[0]["AS e2e"] == pytest.approx(1.5 * 1.1**0.5, rel=0.1)


def test_results_without_their_version_are_reported_without_graphs(data, tmp_path):
    (shard,) = Store(data).latest().path.glob("data/results/*.parquet")
    copy = tmp_path / "run.parquet"
    copy.write_bytes(shard.read_bytes())
    page = write_report([str(copy)], tmp_path / "out", tmp_path / "nothing")
    assert "no version at hand holds its graph" in page.read_text(encoding="utf-8")
    assert not list(page.parent.glob("graph_*.png"))


def test_a_sample_of_any_name_has_a_picture_beside_the_page(data, tmp_path):
    table = Store(data).open().table("results")
    named = pa.array(["../\0 of a file"] * len(table))
    pq.write_table(table.set_column(table.schema.get_field_index("sample"), "sample", named), tmp_path / "any.parquet")
    write_report([str(tmp_path / "any.parquet")], tmp_path / "report", data)
    assert (tmp_path / "report" / "graph_..___of_a_file.png").exists()


def test_a_run_without_a_gpu_says_so_and_has_no_device_times(data, tmp_path):
    rows = Store(data).latest().table("results").to_pylist()
    for row in rows:
        row |= {"speedup_device": None, "times_meaningful": False}
    pq.write_table(pa.Table.from_pylist(rows, RESULTS), tmp_path / "cpu.parquet")
    text = write_report([str(tmp_path / "cpu.parquet")], tmp_path / "out", data).read_text(encoding="utf-8")
    assert "no GPU ran" in text and "AS device" in text
    with (tmp_path / "out" / "inductor_by_group.csv").open(newline="") as file:
        assert {line["on the device"] for line in csv.DictReader(file)} == {""}


@pytest.mark.parametrize("names", [["nobody"], ["nowhere.parquet"]])
def test_what_is_not_there_is_said(data, tmp_path, names):
    with pytest.raises(PassNetError, match=re.escape(names[0])):
        write_report(names, tmp_path / "out", data)


def test_a_directory_that_cannot_be_written_is_said(data, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(PassNetError, match="choose another --out"):
        write_report(["latest"], tmp_path / "file" / "out", data)


def test_labels_tell_runs_apart():
    rows = [{"run": f"llm-{'a' * 9}{n}", "author": "llm", "model": "m"} for n in (1, 2)]
    rows += [{"run": "eager-1", "author": "eager", "model": ""}]
    assert len(set(labels(rows).values())) == 3 and labels(rows)["eager-1"] == "eager"


@settings(max_examples=60)
@given(st.lists(st.fixed_dictionaries({"a": st.none() | st.text() | st.floats() | st.integers()}), min_size=1))
def test_any_value_is_text_in_a_table(rows):
    shown = Page(page.table(rows, ["a"], long=("a",)))
    assert set(shown.tags) <= {"div", "table", "thead", "tbody", "tr", "th", "td"} and shown.open == []


def every_part(text: str) -> Page:
    parts = [
        page.paragraph(text),
        page.subheading(text),
        page.picture(b"png", text, text, tall=True),
        page.folded(text, page.paragraph(text)),
        page.table([{text: text}], [text]),
    ]
    return Page(page.page(text, text, [text], [(text, page.grid(parts))]))


@settings(max_examples=60)
@given(st.text(min_size=1) | st.sampled_from([HOSTILE, "</title><script>", '" onerror="x', "{{ 7 * 7 }}", "&amp;"]))
def test_any_text_is_text_in_every_part(text):
    shown = every_part(text)
    assert shown.tags == every_part("plain").tags and shown.open == []
    assert shown.alts == [text]


@settings(max_examples=60)
@given(records())
def test_every_edge_of_a_graph_is_drawn_from_layer_to_layer(graph):
    nodes, edges = layers(graph, [spec("x", 2)] * graph.inputs)
    assert all(nodes[end].layer == nodes[start].layer + 1 for start, end in edges)
    above: dict[int, set[int]] = {}
    for start, end in edges:
        above.setdefault(end, set()).add(start)

    def origin(number: int) -> int:
        while nodes[number].kind == "bend":
            (number,) = above[number]
        return number

    for number, op in enumerate(graph.ops, graph.inputs):
        assert {origin(n) for n in above.get(number, ())} == {r.index for r in refs((op.args, op.kwargs))}


def test_long_and_odd_graphs_are_drawn():
    ops = [Op("function", "torch.relu", (Ref(n),), {}) for n in range(MOST_OPS + 6)]
    figure = draw(Graph(1, tuple(ops), Ref(len(ops))), [spec("x", 2, 3)])
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts.count("relu") == MOST_OPS and "and 6 more ops" in texts and "f32 2×3" in texts
    constant = Graph(
        1, (Op("function", "torch.zeros", ((2,),), {}), Op("function", "torch.relu", (Ref(1),), {})), Ref(2)
    )
    assert imread(BytesIO(png(draw(constant, [spec("w", 2, role="parameter")])))).std() > 0


@pytest.mark.parametrize("speedups", [[1.0], [1.0] * 20, [0.5, 2.0] * 10, [1e-6, 1e6]])
def test_violins_of_any_speedups(speedups):
    rows = [{"status": "ok", "speedup_e2e": s, "dtype": "$\\frac{1}$", "label": "_a"} for s in speedups]
    assert imread(BytesIO(png(violins(rows, "dtype")))).std() > 0
    assert violins([r | {"status": "wrong"} for r in rows], "dtype") is None


def test_every_author_of_the_fixture_is_in_the_report(written):
    with (written / "results.csv").open(newline="") as file:
        assert {line["author"] for line in csv.DictReader(file)} == set(SPEEDUPS)
