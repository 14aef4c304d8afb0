"""AlterReplicaLogDirs v0-v2: move replicas of this broker to other log directories of it (KIP-113).

Behaviour
- The answer says that the move has begun; DescribeLogDirs shows how far it has come. The log
  is copied in the background and then replaced (see replica_moves).
- The directory in which the replica already is cancels a move under way; another one replaces
  its destination. A replica named twice goes where it was named last.
- A partition that is not here (yet) is remembered: should it be created, then there.
Checks, in order: the topic's name leaves room for the folder's (INVALID_TOPIC_EXCEPTION), directory
configured (LOG_DIR_NOT_FOUND), directory and partition online, no directory offline, since it might
hold a copy (KAFKA_STORAGE_ERROR); partition known (UNKNOWN_TOPIC_OR_PARTITION) and replicated here
(REPLICA_NOT_AVAILABLE).
Versions: v2 flexible.
"""

from __future__ import annotations

from typing import Final

from tidelog.broker.authorized_operations import ALTER
from tidelog.broker.broker import Broker
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.log.directory.log_directory import FOLDER_NAME_MAX
from tidelog.log.log_errors import StorageError
from tidelog.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from tidelog.types import TopicPartition

FUTURE_NAME_ENDING: Final = len(".-future") + 32


def handle(
    context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    allowed = context.may_on_cluster(ALTER)
    wanted = {
        TopicPartition(topic.name, index): each.path
        for each in request.dirs
        for topic in each.topics
        for index in topic.partitions
    }
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for topic_partition, path in wanted.items():
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if allowed:
            code = _alter(context.broker, topic_partition, path)
        topic = topic_partition.topic
        result = results.setdefault(topic, AlterReplicaLogDirTopicResult(topic_name=topic))
        result.partitions.append(
            AlterReplicaLogDirPartitionResult(
                partition_index=topic_partition.partition, error_code=code
            )
        )
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _alter(broker: Broker, topic_partition: TopicPartition, path: str) -> ErrorCode:
    try:
        _move(broker, topic_partition, path)
    except KafkaError as error:
        if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return ErrorCode.REPLICA_NOT_AVAILABLE
        return error.code
    return ErrorCode.NONE


def _move(broker: Broker, topic_partition: TopicPartition, path: str) -> None:
    if len(f"{topic_partition}") + FUTURE_NAME_ENDING > FOLDER_NAME_MAX:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic name is too long")
    directory = broker.logs.directories.at(path)
    if directory is None:
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND)
    if not broker.logs.directories.is_online(directory):
        raise StorageError(f"the log directory {path} is offline")
    partition = broker.replicas.get(*topic_partition)
    if partition is None:
        code = broker.replicas.absent_error(*topic_partition)
        if code is not ErrorCode.KAFKA_STORAGE_ERROR:
            broker.logs.prefer(topic_partition, directory)
        raise KafkaError(code)
    broker.moves.move(partition.log, directory)
