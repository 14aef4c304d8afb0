"""ListOffsets v0-v11: offsets by position or by time.

Behaviour
- Timestamps below zero ask for a position: -1 latest, -2 earliest, -3 largest timestamp (v7),
  -4 earliest local (v8), -5 latest tiered (v9), -6 earliest not yet tiered (v11). Without tiered
  storage -4 is the log start and -5, -6 are unknown (-1). One that its version does not
  have is UNSUPPORTED_VERSION.
- "Latest" is the high watermark, with read_committed the last stable offset; a replica sees the
  log end. A time look-up is exact inside a batch and finds nothing (-1) at or above "latest".
- A partition named twice is INVALID_REQUEST.
- A new leader whose high watermark has not reached the start of its epoch may know less than the
  one before it has told: OFFSET_NOT_AVAILABLE (v5, before: LEADER_NOT_AVAILABLE; KIP-207) where the
  answer depends on it.
- v0 answers a list: segment base offsets and the latest, newest first, below the time asked for.
Checks, in order: duplicate, timestamp known to the version, hosted and led here, leader epoch.
Versions: v1 one offset with its timestamp, v2 isolation level, v4 leader epochs, v6 flexible,
v10 timeout.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.replication.partition import (
    CONSUMER_REPLICA_ID,
    DEBUGGING_REPLICA_ID,
    Partition,
)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
FIRST_VERSION_OF: Final = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
READ_COMMITTED: Final = 1
FIRST_VERSION_WITH_EPOCHS: Final = 4
FIRST_VERSION_WITH_NOT_AVAILABLE: Final = 5


def handle(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    named = [
        (topic.name, row.partition_index) for topic in request.topics for row in topic.partitions
    ]
    twice = {key for key, count in Counter(named).items() if count > 1}
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _answer(context, request, topic.name, row, twice) for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _answer(
    context: RequestContext,
    request: ListOffsetsRequest,
    topic: str,
    row: ListOffsetsPartition,
    twice: set[tuple[str, int]],
) -> ListOffsetsPartitionResponse:
    index = row.partition_index
    try:
        if (topic, index) in twice:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        unknown_version = FIRST_VERSION_OF.get(row.timestamp, 99) > context.api_version
        if row.timestamp < 0 and context.api_version > 0 and unknown_version:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        partition = _partition(context, request, topic, index)
        partition.require_leader_epoch(row.current_leader_epoch)
        if context.api_version == 0:
            offsets = _old_style_offsets(partition, row)
            return ListOffsetsPartitionResponse(partition_index=index, old_style_offsets=offsets)
        offset, timestamp, epoch = _find(partition, row.timestamp, _latest(partition, request))
        if offset < 0 or row.timestamp == LATEST:
            _require_caught_up(context, request, partition)
    except KafkaError as error:
        return ListOffsetsPartitionResponse(partition_index=index, error_code=error.code)
    return ListOffsetsPartitionResponse(
        partition_index=index,
        offset=offset,
        timestamp=timestamp,
        leader_epoch=epoch if context.api_version >= FIRST_VERSION_WITH_EPOCHS else -1,
    )


def _partition(
    context: RequestContext, request: ListOffsetsRequest, topic: str, index: int
) -> Partition:
    """Tools may ask a follower too."""
    replicas = context.broker.replicas
    if request.replica_id == DEBUGGING_REPLICA_ID:
        followed = replicas.get(topic, index)
        if followed is not None:
            return followed
    return replicas.leader(topic, index)


def _require_caught_up(
    context: RequestContext, request: ListOffsetsRequest, partition: Partition
) -> None:
    leadership = partition.leadership
    if (
        leadership is not None
        and request.replica_id == CONSUMER_REPLICA_ID
        and leadership.epoch_start_offset > partition.log.high_watermark
    ):
        is_known = context.api_version >= FIRST_VERSION_WITH_NOT_AVAILABLE
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE if is_known else ErrorCode.LEADER_NOT_AVAILABLE
        )


def _latest(partition: Partition, request: ListOffsetsRequest) -> int:
    log = partition.log
    if request.replica_id >= 0 or request.replica_id == DEBUGGING_REPLICA_ID:
        return log.log_end_offset
    if request.isolation_level == READ_COMMITTED:
        return log.last_stable_offset
    return log.high_watermark


def _find(partition: Partition, timestamp: int, latest: int) -> tuple[int, int, int]:
    """Offset, timestamp and leader epoch; -1 each where nothing is found."""
    log = partition.log
    if timestamp == LATEST:
        return latest, -1, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.log_start_offset, -1, log.epoch_at(log.log_start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1, -1
    found = (
        log.max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    )
    if found is None or found.offset >= latest:
        return -1, -1, -1
    return found.offset, found.timestamp, log.epoch_at(found.offset)


def _old_style_offsets(partition: Partition, row: ListOffsetsPartition) -> list[int]:
    log = partition.log
    high_watermark = log.high_watermark
    if row.timestamp == EARLIEST:
        offsets = [log.log_start_offset]
    else:
        bases = log.segment_base_offsets(
            modified_before_ms=None if row.timestamp == LATEST else row.timestamp
        )
        offsets = sorted({max(base, log.log_start_offset) for base in bases}, reverse=True)
        if row.timestamp == LATEST:
            offsets = sorted({high_watermark, *offsets}, reverse=True)
    offsets = [offset for offset in offsets if offset <= high_watermark]
    return offsets[: max(row.max_num_offsets, 0)]
