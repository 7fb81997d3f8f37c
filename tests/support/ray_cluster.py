"""A Ray cluster of several nodes on this machine; nodes can be killed and added."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def ray_cluster(nodes: int = 2, cores: int = 1) -> Iterator[Any]:
    """A `ray.cluster_utils.Cluster` with a head without cores and `nodes` others, at RAY_ADDRESS within the block.

    Skips the test where Ray is not installed.
    """
    ray = pytest.importorskip("ray", reason="needs Ray: pip install 'passnet[ray]'")
    from ray.cluster_utils import Cluster

    before = {name: os.environ.get(name) for name in ("RAY_ADDRESS", "RAY_ENABLE_UV_RUN_RUNTIME_ENV")}
    os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(nodes):
            cluster.add_node(num_cpus=cores)
        cluster.wait_for_nodes()
        os.environ["RAY_ADDRESS"] = cluster.address
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
