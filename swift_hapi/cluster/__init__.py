"""A real single-machine Swift for demo, tests and benchmarks.

    with EmbeddedCluster(ClusterConfig(dir="/tmp/c", replicas=3, object_devices=4)) as cluster:
        requests.get(cluster.storage_url, headers={"X-Auth-Token": cluster.token})

Nothing here imports swift, eventlet or torch: the servers are processes of their own, all of them
children of one supervisor, which ends with whoever asked for it.
"""

from swift_hapi.cluster.config import ClusterConfig, User
from swift_hapi.cluster.control import (
    ClusterInfo,
    find,
    find_or_wait,
    running_state,
    shut_down,
)
from swift_hapi.cluster.embedded import EmbeddedCluster
from swift_hapi.cluster.errors import ClusterError
from swift_hapi.cluster.probe import authenticate

__all__ = [
    "ClusterConfig",
    "ClusterError",
    "ClusterInfo",
    "EmbeddedCluster",
    "User",
    "authenticate",
    "find",
    "find_or_wait",
    "running_state",
    "shut_down",
]
