"""DescribeLogDirs v0-v5: the log directories, what lies in them and how much room is left.

Behaviour
- Null topics mean all; a topic without partitions named means none of it. Partitions that are
  not hosted are left out, not refused.
- A directory that has failed is KAFKA_STORAGE_ERROR, with nothing in it.
- Sizes are the bytes of the log segments; the lag of a current replica is how far its high
  watermark is above its end, that of a future one how far its end is below the current one's.
  Total and usable bytes (v4) are the file system's.
Checks, in order: DESCRIBE on the cluster (31 from v3 on, before that nothing is shown).
Versions: v1 future replicas (KIP-113), v2 flexible, v3 top-level error, v4 room (KIP-827).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from tidelog.broker.authorized_operations import DESCRIBE
from tidelog.broker.bulky_answers import EncodedAnswer, answer_in_slices
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode
from tidelog.log.directory.log_directory import LogDirectory
from tidelog.log.log_manager import LogManager
from tidelog.pending import Pending
from tidelog.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tidelog.types import TopicPartition


def handle(
    context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse | Pending[EncodedAnswer]:
    if not context.may_on_cluster(DESCRIBE):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    replicas, logs = context.broker.replicas, context.broker.logs
    if request.topics is None:
        wanted = [partition.topic_partition for partition in replicas]
    else:
        named = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
        wanted = [TopicPartition(*key) for key in sorted(named) if replicas.get(*key)]
    results = [
        DescribeLogDirsResult(log_dir=directory.absolute_path) for directory in logs.directories
    ]

    def describe_all() -> Iterator[None]:
        for directory, result in zip(logs.directories, results, strict=True):
            yield from _describe(logs, directory, wanted, result)

    return answer_in_slices(
        context, describe_all(), lambda: DescribeLogDirsResponse(results=results)
    )


def _describe(
    logs: LogManager,
    directory: LogDirectory,
    wanted: Iterable[TopicPartition],
    result: DescribeLogDirsResult,
) -> Iterator[None]:
    if not logs.directories.is_online(directory):
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return
    try:
        room = os.statvfs(directory.path)
    except OSError as error:
        logs.failures.report(str(directory.path), "find out its room", error)
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return
    topics: dict[str, DescribeLogDirsTopic] = {}
    for topic_partition in wanted:
        name = topic_partition.topic
        for row in _replicas(logs, directory, topic_partition):
            topic = topics.setdefault(name, DescribeLogDirsTopic(name=name))
            topic.partitions.append(row)
        yield
    result.topics = list(topics.values())
    result.total_bytes = room.f_blocks * room.f_frsize
    result.usable_bytes = room.f_bavail * room.f_frsize


def _replicas(
    logs: LogManager, directory: LogDirectory, topic_partition: TopicPartition
) -> Iterator[DescribeLogDirsPartition]:
    log = logs.get(topic_partition)
    if log is not None and logs.directory_of(topic_partition) is directory:
        yield DescribeLogDirsPartition(
            partition_index=topic_partition.partition,
            partition_size=log.size_bytes,
            offset_lag=max(log.high_watermark - log.log_end_offset, 0),
            is_future_key=False,
        )
    future = logs.futures.get(topic_partition)
    if future is not None and future.directory is directory:
        yield DescribeLogDirsPartition(
            partition_index=topic_partition.partition,
            partition_size=future.log.size_bytes,
            offset_lag=future.offset_lag,
            is_future_key=True,
        )
