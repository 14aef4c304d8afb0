"""Offsets of a streaming query committed to a consumer group, for lag tools: `commitGroupId`.

The checkpoint alone decides what a query reads; the group only shows how far it is. It is committed
to without being joined, so it must have no members. The offsets of a batch are committed when the
next trigger begins, after Spark has recorded the batch as done.

    the broker has no groups, or the group does not take offsets    the query fails, with the reason
    no answer for now                                               a warning, tried next time
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.client.errors import (
    CommitRefused,
    ConnectionFailed,
    RequestTimedOut,
    UnsupportedByBroker,
)
from tidelog.client.groups import commit_offsets
from tidelog.spark.options import InvalidOption

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.spark.offsets import PartitionOffsets

logger = logging.getLogger(__name__)

CommitOffsets = Callable[["Cluster", str, "PartitionOffsets"], None]


class GroupCommitter:
    def __init__(
        self, cluster: Cluster, group_id: str, commit: CommitOffsets = commit_offsets
    ) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._commit = commit
        self._committed: PartitionOffsets = {}  # what the group is known to hold

    def commit(self, offsets: PartitionOffsets) -> None:
        moved = {
            partition: offset
            for partition, offset in offsets.items()
            if self._committed.get(partition) != offset
        }
        if not moved:
            return
        try:
            self._commit(self._cluster, self._group_id, moved)
        except (UnsupportedByBroker, CommitRefused) as problem:
            raise InvalidOption("commitGroupId", str(problem)) from problem
        except (ConnectionFailed, RequestTimedOut) as problem:
            logger.warning("%s; the offsets are committed with those of the next batch", problem)
            return
        self._committed.update(moved)
