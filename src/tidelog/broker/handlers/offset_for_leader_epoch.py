"""OffsetForLeaderEpoch v0-v4: where a leader epoch ended in this broker's log.

Behaviour
- The answer is the largest epoch not above the one asked for, with its end offset; -1/-1 when
  the log knows no such epoch. The present epoch ends at the log end.
- A current leader epoch that is not ours is FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH.
Versions: v1 epoch in the answer, v2 current leader epoch, v3 replica id, v4 flexible.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.errors import KafkaError
from tidelog.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(
    context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_end_of_epoch(context, topic.topic, row) for row in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _end_of_epoch(
    context: RequestContext, topic: str, row: OffsetForLeaderPartition
) -> EpochEndOffset:
    try:
        partition = context.broker.replicas.leader(topic, row.partition)
        partition.require_leader_epoch(row.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(
            partition=row.partition, error_code=error.code, leader_epoch=-1, end_offset=-1
        )
    epoch, end_offset = partition.log.epoch_end_offset(row.leader_epoch)
    return EpochEndOffset(partition=row.partition, leader_epoch=epoch, end_offset=end_offset)
