"""A Ray cluster on this machine: a head without cores, to which tests add nodes, and kill them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from tests.sandboxes.leftovers import parent_of
from tests.shared_data import REPOSITORY

SMALL = {"object_store_memory": 80 << 20, "include_dashboard": False}
ENVIRONMENT = {
    "PYTHONPATH": str(REPOSITORY),
    "RAY_memory_monitor_refresh_ms": "0",  # it would end workers where the rest of the machine uses its memory
    "RAY_USAGE_STATS_ENABLED": "0",
}


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    """A cluster that this process is connected to; without Ray the test is skipped."""
    ray = pytest.importorskip("ray", reason='Ray is not installed: pip install "turngym[ray]"')
    from ray.cluster_utils import Cluster

    from sandboxes.nodes import connect

    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="ray-") as folder:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value, prepend=":" if name == "PYTHONPATH" else None)
        patch.setenv("RAY_TMPDIR", folder)  # not `temp_dir`: the address would still go to /tmp/ray, if there is one
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **SMALL})
        try:
            connect(cluster.address)
            yield Nodes(cluster)
        finally:
            ray.shutdown()
            cluster.shutdown()


class Nodes:
    """The nodes beside the head."""

    def __init__(self, cluster: Any) -> None:
        self.address: str = cluster.address
        self._cluster = cluster
        self._alive: list[Any] = []

    def only(self) -> Any:
        """The only one: any that lives, else a new one."""
        for node in self._alive[1:]:
            self.kill(node)
        return self._alive[0] if self._alive else self.add()

    def add(self) -> Any:
        """Another one, ready."""
        node = self._cluster.add_node(num_cpus=4, **SMALL)
        self._cluster.wait_for_nodes()
        self._alive.append(node)
        return node

    def kill(self, node: Any) -> None:
        """`kill -9` of its raylet."""
        self._alive.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def of(self, process: int) -> Any:
        """The node that a process was started on."""
        ancestors = []
        while process:
            ancestors.append(process)
            process = parent_of(process)
        (node,) = [node for node in self._alive if node.all_processes["raylet"][0].process.pid in ancestors]
        return node
