"""Catalogues: every line is checked before any work."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extraction.sources import task_heads
from extraction.sources.catalog import Entry, parse_entry, points_of, read_catalog
from extraction.sources.registry import SOURCES
from storage.errors import PassNetError

NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,20}", fullmatch=True)
LINES = st.one_of(
    NAMES.map("timm:{}".format),
    NAMES.map("transformers:{}".format),
    st.tuples(NAMES, st.from_regex(r"[A-Za-z]\w{0,10}", fullmatch=True)).map("transformers:{0[0]}/{0[1]}".format),
    st.tuples(NAMES, NAMES).map("hub:{0[0]}/{0[1]}".format),
    st.tuples(NAMES, NAMES, NAMES).map("hub:{0[0]}/{0[1]}@{0[2]}".format),
    st.from_regex(r"dir:[A-Za-z/._ \-]{0,20}[A-Za-z/]", fullmatch=True),
)


@given(LINES)
def test_an_entry_is_its_own_canonical_line(line: str) -> None:
    entry = parse_entry(line)
    assert parse_entry(entry.text) == entry
    assert parse_entry(f"  {line}\t") == entry


@given(st.text())
def test_any_text_is_an_entry_or_one_clear_line(text: str) -> None:
    try:
        entry = parse_entry(text)
    except PassNetError as error:
        assert "expected" in str(error)
    else:
        assert entry.name


def test_parts_of_an_entry() -> None:
    assert parse_entry("timm:resnet50.a1_in1k") == Entry("timm:resnet50.a1_in1k", "timm", "resnet50.a1_in1k")
    assert parse_entry("transformers:bert/BertForMaskedLM").name == "bert/BertForMaskedLM"
    hub = parse_entry("hub:org/name@refs/pr/1")
    assert (hub.name, hub.revision) == ("org/name", "refs/pr/1")


def test_a_list_file_with_comments_and_duplicates(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("# models\n\ntimm:resnet18  # small\ntransformers:bert\n timm:resnet18\n")
    assert [entry.text for entry in read_catalog(str(path))] == ["timm:resnet18", "transformers:bert"]
    assert [entry.text for entry in read_catalog(str(path), limit=1)] == ["timm:resnet18"]


def test_a_list_file_says_how_many_shape_points_it_wants(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("points: 3  # few\ntimm:resnet18\n")
    assert points_of(str(path)) == 3
    assert [entry.text for entry in read_catalog(str(path))] == ["timm:resnet18"]
    path.write_text("# points: 3\ntimm:resnet18\n")
    assert points_of(str(path)) is None
    assert points_of("timm") is None and points_of("hub?library=timm") is None
    assert 1 < points_of("quickstart") < 10


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("points: few", "'points: few' is not a number of shape points"),
        ("points: 0", "'points: 0' is not a number of shape points"),
        ("resnet18", "'resnet18' does not name a source; expected one of timm:NAME, "),
        ("tim:resnet18", "'tim' is not a source; expected one of timm:NAME, "),
        ("timm:", "'' is not a name of source timm; expected timm:NAME"),
        ("timm:a b", "'a b' is not a name of source timm"),
        ("transformers:bert/1X", "'bert/1X' is not a name of source transformers; expected transformers:MODEL_TYPE"),
        ("hub:org/name/more", "'org/name/more' is not a name of source hub; expected hub:ORG/NAME"),
        ("dir:", "'' is not a name of source dir; expected dir:PATH"),
    ],
)
def test_a_bad_line_says_where_and_what(tmp_path: Path, line: str, what: str) -> None:
    path = tmp_path / "list.txt"
    path.write_text(f"timm:resnet18\n\n{line}\ntimm:*\n")
    with pytest.raises(PassNetError) as raised:
        read_catalog(str(path))
    assert str(raised.value).startswith(f"{path}, line 3: {what}")
    assert str(raised.value).endswith("(1 more bad lines)")
    assert "\n" not in str(raised.value)


def test_catalogues_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(PassNetError, match="no catalogue 'quickstrat'; choose quickstart, timm, transformers"):
        read_catalog("quickstrat")
    with pytest.raises(PassNetError, match=r"more than a million models; say how many .* --limit N"):
        read_catalog("hub")
    with pytest.raises(PassNetError, match=r"'tsk=x' is not in a query of the Hub; write hub\?KEY=VALUE&… with task"):
        read_catalog("hub?tsk=x", limit=1)
    with pytest.raises(PassNetError, match=r"has no model\.py anywhere below it"):
        read_catalog(str(tmp_path))
    empty = tmp_path / "empty.txt"
    empty.write_text("# nothing\n")
    with pytest.raises(PassNetError, match="no entries"):
        read_catalog(str(empty))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PassNetError, match="cannot be read"):
        read_catalog(str(tmp_path / "binary"))
    with pytest.raises(PassNetError, match="--limit 0"):
        read_catalog("quickstart", limit=0)


def test_the_quickstart_has_every_kind_of_model() -> None:
    entries = read_catalog("quickstart")
    names = {entry.text for entry in entries}
    assert len(entries) >= 16
    for kind in ("timm:resnet18", "timm:vit_tiny_patch16_224", "timm:levit_128s", "transformers:bert"):
        assert kind in names
    for kind in ("gpt2", "t5", "segformer", "wav2vec2", "clip"):  # decoder, both, vision, audio, text-image
        assert f"transformers:{kind}" in names


@pytest.mark.parametrize(("source", "count"), [("timm", 1_300), ("transformers", 500)])
def test_a_whole_source(source: str, count: int) -> None:
    entries = read_catalog(source)
    assert len(entries) > count
    assert {entry.source for entry in entries} == {source}
    assert source in SOURCES
    assert read_catalog(source, limit=3) == entries[:3]


def test_the_heads_of_the_most_used_types() -> None:
    names = [entry.name for entry in read_catalog("transformers-heads")]
    assert len(task_heads.MOST_USED) == len(set(task_heads.MOST_USED)) == 100
    assert {name.partition("/")[0] for name in names} == set(task_heads.MOST_USED)
    assert "bert/BertForMaskedLM" in names and "bert/BertModel" not in names
    assert not [name for name in names if name.endswith("Config")]
