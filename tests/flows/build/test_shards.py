"""Shards in killable workers: what fails costs itself alone, and what is done is not done again."""

from contextlib import suppress
from pathlib import Path

import pytest

from dedup.hashes import identify_base
from dedup.rows import batches, stream, write
from extraction.pool.client import Pool
from flows.build.shards import Payload, run_shards, shard
from flows.build.subgraphs import _each_row, working
from flows.progress import Progress, listening
from storage.errors import PassNetError
from storage.records import Variant
from storage.schema import SUBGRAPHS
from tests.support.graphs import corpus
from tests.support.in_memory import cut_corpus, unique
from tests.support.kept_pool import kept_pool
from tests.support.warm_forks import WarmForks


@pytest.fixture
def pool(build_pool: Pool) -> Pool:
    return build_pool


@pytest.fixture
def subgraphs(tmp_path: Path) -> Path:
    found = unique(map(identify_base, cut_corpus(corpus()[:1]).variants)).variants[:3]
    path = tmp_path / "subgraphs.parquet"
    write(path, (b.select(SUBGRAPHS.names) for b in batches(found)), SUBGRAPHS, {})
    return path


def _rows(payload: Payload) -> list[Variant]:
    return [Variant.from_row(row) for batch in stream(Path(payload["out"])) for row in batch.to_pylist()]


def test_a_shard_that_fails_is_run_in_pieces_and_counted_by_cause(subgraphs: Path, tmp_path: Path, pool: Pool) -> None:
    good = shard(tmp_path / "out", file=str(subgraphs), rows=[[0, 0]], points=10)
    bad = shard(tmp_path / "out", file=str(subgraphs), rows=[[0, 1], [0, 2], [0, 3]], points=10)  # there is no row 3
    done = run_shards("vary_shard", [good, bad], _each_row, pool)
    assert done.dropped["vary-shard: crashed"] == 1
    assert [payload["rows"] for payload in done.payloads] == [[[0, 0]], [[0, 1]], [[0, 2]]]
    forward = [v for payload in done.payloads for v in _rows(payload) if v.direction == "forward"]
    assert {v.inputs[0].dtype for v in forward} >= {"float32", "float16", "bfloat16"}
    assert all(v.variant_hash and v.family_hash and v.code for v in forward)

    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    again = run_shards("vary_shard", [good, bad], _each_row, pool)
    assert again == done, "only what failed is tried again"
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before


def test_the_largest_shard_is_run_first(subgraphs: Path, tmp_path: Path, warm_forks: WarmForks) -> None:
    shards = [shard(tmp_path / "out", file=str(subgraphs), rows=[[0, row]], points=1) for row in range(3)]
    events: list[Progress] = []
    limits = {"workers": 1, "timeout_s": 200, "memory_mb": 4000}
    with listening(events.append), kept_pool(warm_forks, **limits) as alone:
        done = run_shards("vary_shard", shards, _each_row, alone, lambda one: [5.0, 1.0, 9.0][one["rows"][0][1]])
    assert done.payloads == shards, "what comes of it is in the order given"
    ended = sorted(shards, key=lambda one: Path(one["out"]).stat().st_mtime_ns)
    assert [one["rows"] for one in ended] == [[[0, 2]], [[0, 0]], [[0, 1]]]
    assert [(event.stage, event.done, event.total) for event in events] == [("vary", n, 3) for n in range(4)]


def test_where_everything_fails_there_is_no_result(subgraphs: Path, tmp_path: Path, pool: Pool) -> None:
    """A fault of the machine or of this code is no property of the models."""
    missing = shard(
        tmp_path / "out", file=str(subgraphs.with_name("missing.parquet")), rows=[[0, 0], [0, 1]], points=10
    )
    with pytest.raises(PassNetError, match=r"vary-shard failed on all of its 2 pieces of work; the first: .*missing"):
        run_shards("vary_shard", [missing], _each_row, pool)
    assert run_shards("vary_shard", [], _each_row, pool).payloads == []


def test_a_build_goes_on_with_its_own_files_and_leaves_the_shards_that_it_used(tmp_path: Path) -> None:
    with suppress(KeyboardInterrupt), working(tmp_path, "a" * 64) as work:
        work.of_build.mkdir(parents=True)
        (work.of_build / "subgraphs.parquet").touch()
        work.shards.mkdir(parents=True)
        for name in ("one.parquet", "two.parquet"):
            (work.shards / name).touch()
        raise KeyboardInterrupt
    with suppress(KeyboardInterrupt), working(tmp_path, "a" * 64) as work:
        assert (work.of_build / "subgraphs.parquet").exists()
        raise KeyboardInterrupt
    (tmp_path / "work" / "of somebody").mkdir()
    with working(tmp_path, "b" * 64) as work:
        assert not list(tmp_path.rglob("subgraphs.parquet")), "of another build"
        work.of_build.mkdir(parents=True)
    assert len(list(work.shards.iterdir())) == 2, "a build that finds its stages done does not know its shards"
    with working(tmp_path, "b" * 64) as work:
        work.of_build.mkdir(parents=True)
        work.used.update(cut={work.shards / "one.parquet"}, vary=set())
    assert [path.name for path in work.shards.iterdir()] == ["one.parquet"]
    assert not work.of_build.exists()
    assert (tmp_path / "work" / "of somebody").exists(), "a data directory may have a link to another in place of this"
