"""ListOffsets v0-v11: offsets by position or by time.

Behaviour
- Timestamps below zero ask for a position: -1 latest, -2 earliest, -3 largest timestamp (v7),
  -4 earliest local (v8), -5 latest tiered (v9), -6 earliest not yet tiered (v11). Without tiered
  storage -4 is the log start and -5, -6 are unknown (-1). One that its version does not
  have is UNSUPPORTED_VERSION.
- "Latest" is the high watermark, with read_committed the last stable offset; a replica sees the
  log end. A time look-up is exact inside a batch and finds nothing (-1) at or above "latest".
- A thread looks into batches that take long to inflate; the whole answer waits for it.
- A partition named twice is INVALID_REQUEST, an isolation level that is not known
  UNKNOWN_SERVER_ERROR for every partition. From v10 on, which only Kafka 4 has, each topic and
  partition is answered once, and a topic without partitions not at all.
- A new leader whose high watermark has not reached the start of its epoch may know less than the
  one before it has told: OFFSET_NOT_AVAILABLE (v5, before: LEADER_NOT_AVAILABLE; KIP-207) where the
  answer depends on it.
- v0 answers a list, newest first: where the segments begin that were last written at or before the
  time asked for, and the log end, which counts as written now. It knows only -1 and -2, and takes
  partitions that are named twice. A negative max_num_offsets is UNKNOWN_SERVER_ERROR.
Unlike Kafka 4, which answers in the order of a hash map, the order is the request's.
Checks, in order: isolation level, duplicate, timestamp known to the version, hosted and led here,
leader epoch.
Versions: v1 one offset with its timestamp, v2 isolation level, v4 leader epochs, v6 flexible,
v10 timeout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine
from typing import Any, Final

from tidelog.broker.authorized_operations import DESCRIBE, TOPIC
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.log.segment.segment_walk import WalkDue
from tidelog.log.time_lookup import BatchLookups
from tidelog.protocol.listed_timestamps import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    FIRST_VERSION_OF,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from tidelog.replication.partition import (
    CONSUMER_REPLICA_ID,
    DEBUGGING_REPLICA_ID,
    Partition,
)

READ_COMMITTED: Final = 1
ISOLATION_LEVELS: Final = (0, READ_COMMITTED)
LAST_VERSION_WITH_LISTS: Final = 0
FIRST_VERSION_WITH_EPOCHS: Final = 4
FIRST_VERSION_WITH_NOT_AVAILABLE: Final = 5
FIRST_VERSION_OF_KAFKA_4: Final = 10
ROWS_AT_ONCE: Final = 100  # more are answered in slices


def handle(
    context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]:
    named = [
        (topic.name, row.partition_index) for topic in request.topics for row in topic.partitions
    ]
    twice: set[tuple[str, int]] = set()
    if context.api_version > LAST_VERSION_WITH_LISTS:
        twice = {key for key, count in Counter(named).items() if count > 1}
    topics = request.topics
    if context.api_version >= FIRST_VERSION_OF_KAFKA_4:
        topics = _distinct(topics)
    lookups = BatchLookups()
    if len(named) > ROWS_AT_ONCE:
        return _answer_in_slices(context, request, topics, twice, lookups)
    try:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        _answer(context, request, topic.name, row, twice, lookups)
                        for row in topic.partitions
                    ],
                )
                for topic in topics
            ]
        )
    except WalkDue:
        return _answer_in_slices(context, request, topics, twice, lookups)


async def _answer_in_slices(
    context: RequestContext,
    request: ListOffsetsRequest,
    topics: list[ListOffsetsTopic],
    twice: set[tuple[str, int]],
    lookups: BatchLookups,
) -> ListOffsetsResponse:
    """Walks that are due are made in threads, one after another."""
    response = ListOffsetsResponse(topics=[])
    for topic in topics:
        rows: list[ListOffsetsPartitionResponse] = []
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
        for row in topic.partitions:
            answer = None
            while answer is None:
                await context.broker.slices.breathe()
                try:
                    answer = _answer(context, request, topic.name, row, twice, lookups)
                except WalkDue as due:
                    await context.broker.record_threads.walk(due.walk)
            rows.append(answer)
    return response


def _distinct(topics: list[ListOffsetsTopic]) -> list[ListOffsetsTopic]:
    merged: dict[str, dict[int, ListOffsetsPartition]] = {}
    for topic in topics:
        for row in topic.partitions:
            merged.setdefault(topic.name, {})[row.partition_index] = row
    return [
        ListOffsetsTopic(name=name, partitions=list(rows.values())) for name, rows in merged.items()
    ]


def _answer(
    context: RequestContext,
    request: ListOffsetsRequest,
    topic: str,
    row: ListOffsetsPartition,
    twice: set[tuple[str, int]],
    lookups: BatchLookups,
) -> ListOffsetsPartitionResponse:
    """WalkDue passes."""
    index = row.partition_index
    try:
        if request.isolation_level not in ISOLATION_LEVELS:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        if not context.may(DESCRIBE, TOPIC, topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if (topic, index) in twice:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        unknown_version = FIRST_VERSION_OF.get(row.timestamp, 99) > context.api_version
        if row.timestamp < 0 and unknown_version:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        partition = _partition(context, request, topic, index)
        partition.require_leader_epoch(row.current_leader_epoch)
        if context.api_version == LAST_VERSION_WITH_LISTS:
            now_ms = context.broker.clock.time_ms()
            offsets = _old_style_offsets(partition, request, row, now_ms)
            return ListOffsetsPartitionResponse(partition_index=index, old_style_offsets=offsets)
        latest = _latest(partition, request)
        offset, timestamp, epoch = _find(partition, row.timestamp, latest, lookups)
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


def _find(
    partition: Partition, timestamp: int, latest: int, lookups: BatchLookups
) -> tuple[int, int, int]:
    """Offset, timestamp and leader epoch; -1 each where nothing is found."""
    log = partition.log
    if timestamp == LATEST:
        return latest, -1, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.log_start_offset, -1, log.epoch_at(log.log_start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1, -1
    if timestamp == MAX_TIMESTAMP:
        found = log.max_timestamp(lookups)
    else:
        found = log.offset_for_timestamp(timestamp, lookups)
    if found is None or found.offset >= latest:
        return -1, -1, -1
    return found.offset, found.timestamp, log.epoch_at(found.offset)


def _old_style_offsets(
    partition: Partition, request: ListOffsetsRequest, row: ListOffsetsPartition, now_ms: int
) -> list[int]:
    if row.max_num_offsets < 0:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "max_num_offsets is below 0")
    log = partition.log
    offsets = log.offsets_by_time(now_ms)
    if row.timestamp == EARLIEST:
        del offsets[1:]
    elif row.timestamp != LATEST:
        while offsets and offsets[-1][1] > row.timestamp:
            offsets.pop()
    found = [offset for offset, _ in reversed(offsets)][: row.max_num_offsets]
    high_watermark = log.high_watermark
    if request.replica_id == CONSUMER_REPLICA_ID and found and found[0] > high_watermark:
        found = [high_watermark, *(offset for offset in found if offset <= high_watermark)]
    return found
