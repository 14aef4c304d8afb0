"""DescribeLogDirs v0-v5: the log directories, what lies in them and how much room is left.

Behaviour
- Null topics mean all; a topic without partitions named means none of it. Partitions that are
  not hosted are left out, not refused.
- Sizes are the bytes of the log segments; the lag of a current replica is log end minus high
  watermark. Total and usable bytes (v4) are the file system's.
Versions: v2 flexible, v3 top-level error, v4 room (KIP-827).
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from tidelog.broker.context import RequestContext
from tidelog.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tidelog.replication.partition import Partition


def handle(context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    replicas = context.broker.replicas
    if request.topics is None:
        wanted = list(replicas)
    else:
        named = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
        wanted = [partition for key in sorted(named) if (partition := replicas.get(*key))]
    results = []
    for directory in context.broker.logs.log_dirs:
        inside = (p for p in wanted if p.log.directory.parent == directory)
        room = os.statvfs(directory)
        results.append(
            DescribeLogDirsResult(
                log_dir=str(directory),
                topics=_by_topic(inside),
                total_bytes=room.f_blocks * room.f_frsize,
                usable_bytes=room.f_bavail * room.f_frsize,
            )
        )
    return DescribeLogDirsResponse(results=results)


def _by_topic(partitions: Iterable[Partition]) -> list[DescribeLogDirsTopic]:
    topics: dict[str, DescribeLogDirsTopic] = {}
    for partition in partitions:
        name, index = partition.topic_partition
        log = partition.log
        topic = topics.setdefault(name, DescribeLogDirsTopic(name=name, partitions=[]))
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=index,
                partition_size=log.size_bytes,
                offset_lag=max(log.log_end_offset - log.high_watermark, 0),
                is_future_key=False,
            )
        )
    return list(topics.values())
