"""Offsets of a streaming query committed to a consumer group, for lag tools: `commitGroupId`.

The checkpoint alone decides what a query reads; the group only shows how far it is. It is committed
to without being joined, so it must have no members. The offsets of a batch are committed when the
next trigger begins, after Spark has recorded the batch as done.

    the broker has no groups, or the group does not take offsets    the query fails, with the reason
    no answer for now, or a topic that is gone                      a warning, tried next time
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.client.errors import (
    BrokerRefused,
    ConnectionFailed,
    NotAuthorized,
    RequestTimedOut,
    UnknownTopic,
    UnsupportedByBroker,
)
from tidelog.spark.options import InvalidOption

if TYPE_CHECKING:
    from tidelog.client.blocking.cluster import BlockingCluster
    from tidelog.spark.offsets import PartitionOffsets

logger = logging.getLogger(__name__)


class GroupCommitter:
    def __init__(self, cluster: BlockingCluster, group_id: str) -> None:
        self._cluster = cluster
        self._group_id = group_id
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
            self._cluster.commit_offsets(self._group_id, moved)
        except (ConnectionFailed, RequestTimedOut, UnknownTopic) as problem:
            logger.warning("%s; the offsets are committed with those of the next batch", problem)
            return
        except NotAuthorized:
            raise
        except (UnsupportedByBroker, BrokerRefused) as problem:
            raise InvalidOption("commitGroupId", str(problem)) from problem
        self._committed.update(moved)
