"""OffsetForLeaderEpoch v0-v4: where a leader epoch ended in this broker's log.

Behaviour
- The answer is the largest epoch not above the one asked for, with its end offset; -1/-1 when
  the log knows no such epoch. The present epoch ends at the log end.
- A current leader epoch that is not ours is FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH.
Checks, in order: CLUSTER_ACTION, or DESCRIBE on the topic (29).
Versions: v1 epoch in the answer, v2 current leader epoch, v3 replica id, v4 flexible.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.broker.authorized_operations import CLUSTER_ACTION, DESCRIBE, TOPIC
from tidelog.broker.bulky_answers import EncodedAnswer, answer_in_slices
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.pending import Pending
from tidelog.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(
    context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse | Pending[EncodedAnswer]:
    response = OffsetForLeaderEpochResponse()
    is_broker = context.may_on_cluster_quietly(CLUSTER_ACTION)

    def answer_all() -> Iterator[None]:
        for topic in request.topics:
            result = OffsetForLeaderTopicResult(topic=topic.topic)
            response.topics.append(result)
            if not is_broker and not context.may(DESCRIBE, TOPIC, topic.topic):
                denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                result.partitions = [_failed(row, denied) for row in topic.partitions]
                yield
                continue
            for row in topic.partitions:
                result.partitions.append(_end_of_epoch(context, topic.topic, row))
                yield

    return answer_in_slices(context, answer_all(), lambda: response)


def _end_of_epoch(
    context: RequestContext, topic: str, row: OffsetForLeaderPartition
) -> EpochEndOffset:
    try:
        partition = context.broker.replicas.leader(topic, row.partition)
        partition.require_leader_epoch(row.current_leader_epoch)
    except KafkaError as error:
        return _failed(row, error.code)
    epoch, end_offset = partition.log.epoch_end_offset(row.leader_epoch)
    return EpochEndOffset(partition=row.partition, leader_epoch=epoch, end_offset=end_offset)


def _failed(row: OffsetForLeaderPartition, code: ErrorCode) -> EpochEndOffset:
    return EpochEndOffset(partition=row.partition, error_code=code, leader_epoch=-1, end_offset=-1)
