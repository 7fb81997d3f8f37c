"""Tasks on the nodes of a Ray cluster: the same answers and ends, also where a node is lost or joins."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from extraction.pool.client import TaskReply
from extraction.pool.ray_pool import TRIES, RayPool
from storage.errors import PassNetError
from tests.extraction.pool.test_pool import TASK, by_kind, category
from tests.support.processes import wait_for_end
from tests.support.ray_cluster import ray_cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with ray_cluster(nodes=2) as one:
        yield one


@pytest.fixture
def pool(cluster: Any) -> Iterator[RayPool]:
    with RayPool(workers=None, timeout_s=5.0, memory_mb=256) as one:
        yield one


def run(pool: RayPool, *kinds: str, **payload: object) -> list[TaskReply]:
    return list(pool.run(TASK, [{"do": kind, "number": number, **payload} for number, kind in enumerate(kinds)]))


def test_every_node_takes_tasks_and_bad_ones_end_as_they_do_without_ray(pool: RayPool) -> None:
    replies = run(pool, "answer", "loop", "segfault", "raise", "memory", "exit", *["answer"] * 6)
    assert len(pool.done_on) == 2 and sum(pool.done_on.values()) == 12
    ends = {kind: category(reply) for kind, reply in by_kind(replies).items() if kind != "answer"}
    expected = {"segfault": "crashed", "raise": "crashed", "exit": "crashed"}
    assert ends == {"loop": "timeout", "memory": "out_of_memory", **expected}
    assert sorted(r.answer["number"] for r in replies if r.payload["do"] == "answer") == [0, *range(6, 12)]
    assert pool.size == "2 cores of 3 Ray nodes"


def test_a_task_is_taken_over_when_its_node_is_lost_and_a_new_node_gets_its_share(
    cluster: Any, pool: RayPool, tmp_path: Path
) -> None:
    doomed = cluster.add_node(num_cpus=1)
    pool._counted = float("-inf")  # the new core is seen at once
    payloads = [{"do": "note", "number": number, "seconds": 1.5, "path": str(tmp_path)} for number in range(9)]
    replies = []
    for reply in pool.run(TASK, payloads):
        replies.append(reply)
        if len(replies) == 3:
            begun = len(list(tmp_path.iterdir()))
            cluster.remove_node(doomed, allow_graceful=False)
            cluster.add_node(num_cpus=1)
    assert begun > 3, "the lost node was at work"
    assert sorted(reply.answer for reply in replies) == list(range(9)), "each task ended well, and once"
    tries = [path.name.partition("-")[0] for path in tmp_path.iterdir()]
    assert len(tries) > len(set(tries)), "what the lost node was at was begun again"


def test_a_task_that_takes_its_worker_with_it_each_time_is_lost_alone(pool: RayPool) -> None:
    replies = by_kind(run(pool, "kill_rays_worker", "answer"))
    lost = replies["kill_rays_worker"]
    assert (lost.end, lost.code, category(lost)) == ("lost", TRIES, "crashed")
    assert replies["answer"].completed


def test_closing_the_replies_ends_what_runs(pool: RayPool, tmp_path: Path) -> None:
    payloads = [{"do": "note", "number": number, "seconds": 600, "path": str(tmp_path)} for number in range(2)]
    replies = pool.run(TASK, [{"do": "answer", "number": 9}, *payloads])
    next(replies)
    deadline = time.monotonic() + 30
    while len(found := list(tmp_path.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    pids = [int(path.name.partition("-")[2]) for path in found]
    assert len(pids) == 2
    replies.close()
    assert wait_for_end(pids, 20) == []


def test_a_server_that_cannot_prepare_is_one_clear_line(pool: RayPool) -> None:
    with pytest.raises(PassNetError, match="the tracing server ended with exit code 1: RuntimeError: no library today"):
        list(pool.run(TASK, [{"do": "answer", "number": 0}], "tests.extraction.pool.hostile:refuse"))
