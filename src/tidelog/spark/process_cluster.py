"""Connections kept by a Python worker from one task to the next.

Spark reuses its worker processes, so a task mostly finds the connections of the one before it. What
is known of a topic is asked anew for every task: it may have been deleted and made again since.
A worker runs one task at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.config.client import ClientConfig

CLUSTERS_MAX: Final = 8

_clusters: dict[tuple[tuple[str, str], ...], Cluster] = {}


def process_cluster(config: ClientConfig) -> Cluster:
    """The one of this process for that configuration; the least used are closed."""
    from tidelog.client.cluster import Cluster

    key = tuple(sorted(config.given.items()))
    cluster = _clusters.pop(key, None)
    if cluster is None:
        cluster = Cluster(config)
    _clusters[key] = cluster
    while len(_clusters) > CLUSTERS_MAX:
        _clusters.pop(next(iter(_clusters))).close()
    return cluster
