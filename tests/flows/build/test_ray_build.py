"""A build on the nodes of a Ray cluster: the same bytes as without, one node lost and one added in the middle."""

from pathlib import Path

import pytest

from flows.build_dataset import build_dataset
from flows.progress import Progress, listening
from storage.mirror import Mirror
from storage.versions.remote import Remote
from storage.versions.store import Store, Version
from tests.flows.build.test_build_dataset import contents
from tests.support.ray_cluster import ray_cluster
from tests.support.s3_server import s3_server

TIMES = {"seconds"}
"""Columns of `models` that no two builds share."""


def models(version: Version) -> list[dict]:
    return [{k: v for k, v in row.items() if k not in TIMES} for row in version.table("models").to_pylist()]


def data_of(version: Version) -> dict[str, str]:
    """Digests of all files but those of `models`, which hold times."""
    return {name: digest for name, digest in contents(version.path / "data").items() if not name.startswith("models/")}


@pytest.mark.timeout(600)
def test_three_nodes_make_the_bytes_of_one_machine_with_a_node_lost_and_one_added(built: Path, tmp_path: Path) -> None:
    events: list[Progress] = []
    with ray_cluster(nodes=2) as cluster:
        doomed = cluster.add_node(num_cpus=1)

        def disturb(event: Progress) -> None:
            events.append(event)
            if event.stage == "vary" and event.done == 2:
                cluster.remove_node(doomed, allow_graceful=False)
                cluster.add_node(num_cpus=1)

        with listening(disturb):
            done = build_dataset.fn(
                catalog=str(built.parent / "catalog.txt"), data=str(tmp_path / "data"), runner="ray"
            )
    assert done["created"] and done["failures"] == {}
    there, here = Store(tmp_path / "data").latest(), Store(built).latest()
    assert models(there) == models(here)
    assert data_of(there) == data_of(here)
    nodes = {event.text.rpartition(" on ")[2] for event in events if event.stage == "vary" and event.text}
    assert len(nodes) >= 3, "the shards were spread"


@pytest.mark.timeout(600)
def test_nodes_that_share_no_directory_work_through_an_s3_store(built: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("flows.build_dataset.DEFAULT_DATA", str(tmp_path / "mine"))
    with s3_server() as bucket, ray_cluster(nodes=2):
        url = f"{bucket}/data"
        Mirror(url, built).push_all("traces", "*/*.parquet")  # as an earlier build left them
        done = build_dataset.fn(catalog=str(built.parent / "catalog.txt"), data=url, runner="ray")
        assert done["created"] and done["failures"] == {}
        there, copied = Remote(url).download(Store(tmp_path / "other"))
        assert copied.copied and data_of(there) == data_of(Store(built).latest())
        assert Mirror(url, tmp_path / "other").fetch_all("work") == 0, "shards are removed when the version is there"
        monkeypatch.setattr("flows.build_dataset.DEFAULT_DATA", str(tmp_path / "another machine"))
        again = build_dataset.fn(catalog=str(built.parent / "catalog.txt"), data=url, runner="ray")
        assert not again["created"] and again["version"] == done["version"]
