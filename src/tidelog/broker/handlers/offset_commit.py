"""OffsetCommit v0-v10: keep offsets for a group.

Behaviour
- Written to __consumer_offsets as one batch and answered when it is committed; a member's session
  begins anew. Rows are answered in the order asked for, each with its own error; a topic without
  partitions is left out, unless it is unknown. A partition named twice is answered twice; in v1,
  which Kafka 4 has no more, its last row counts and is answered once, as by Kafka 3.9.
- A group without members takes commits from anybody (generation -1); that makes the group if need
  be. The empty group id is allowed. A member may commit while its group waits for joins, but not
  between join and sync (27).
- A member of a consumer group (KIP-848) names its epoch; for partitions it has held since, an older
  one will do (KIP-1251).
- retention_time_ms (v2-v4) gives the offsets an expiry of their own.
Checks, in order: topic and partition exist (3; by id 100), coordinator (14, 16), group known (22;
v9+: 69), member (25), instance id (82), generation (22), not between join and sync (27), metadata
at most offset.metadata.max.bytes (12). In a consumer group: member (25), version 9 or later (35),
member epoch (113; 22 for a classic member).
Versions: v0 no generation, v1 commit timestamp, v2 retention time, v3 throttle time, v5 no
retention time, v6 leader epoch, v7 static members, v8 flexible, v9 member epochs, v10 topic ids.
Unlike Kafka
- v0 offsets, which Kafka 3.9 keeps in ZooKeeper and refuses (35) without one, are kept with all
  others, so that clients as old as 0.8.1 work.
- Topic ids are not stored: Kafka 3.9 could not read the record. The offsets of a deleted topic go
  with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.context import RequestContext
from tidelog.coordinator.group.coordinator import NewOffset, commit_error
from tidelog.coordinator.group.offsets import NO_EXPIRY, CommittedOffset
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidelog.replication.pending import Pending

if TYPE_CHECKING:
    from tidelog.controller.topics import TopicImage

VERSION_WITH_DISTINCT_ROWS = 1
FIRST_VERSION_WITH_TOPIC_IDS = 10


def handle(
    context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Pending[OffsetCommitResponse]:
    commit = _Commit(context, request)
    topics = request.topics
    if context.api_version == VERSION_WITH_DISTINCT_ROWS:
        topics = [commit.distinct(topic) for topic in _by_name(topics)]
    response = OffsetCommitResponse(
        topics=[
            commit.topic(topic)
            for topic in topics
            if topic.partitions or not commit.is_known(topic)
        ]
    )
    if not commit.known:
        return response
    try:
        flushed = context.broker.groups.commit_offsets(
            request.group_id,
            commit.offsets,
            generation_id=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            version=context.api_version,
        )
    except KafkaError as error:
        commit.fail(error.code)
        return response
    if flushed is None:
        return response
    pending: Pending[OffsetCommitResponse] = Pending()

    def finished(code: ErrorCode) -> None:
        if code is not ErrorCode.NONE:
            commit.fail(commit_error(code))
        pending.complete(response)

    flushed.then(finished)
    return pending


def _by_name(topics: list[OffsetCommitRequestTopic]) -> list[OffsetCommitRequestTopic]:
    rows: dict[str, list[OffsetCommitRequestPartition]] = {}
    for topic in topics:
        rows.setdefault(topic.name, []).extend(topic.partitions)
    return [OffsetCommitRequestTopic(name=name, partitions=some) for name, some in rows.items()]


class _Commit:
    """One request's rows, and those of them that are to be written."""

    __slots__ = (
        "_by_id",
        "_expire_timestamp_ms",
        "_metadata_max",
        "_now_ms",
        "_topics",
        "known",
        "offsets",
    )

    def __init__(self, context: RequestContext, request: OffsetCommitRequest) -> None:
        broker = context.broker
        has_ids = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
        self._topics = broker.topics.topics
        self._by_id = broker.topics.by_id if has_ids else None
        self._now_ms = broker.clock.time_ms()
        self._metadata_max = broker.groups.settings.offset_metadata_max_bytes
        self._expire_timestamp_ms = NO_EXPIRY
        if request.retention_time_ms != -1:
            self._expire_timestamp_ms = self._now_ms + request.retention_time_ms
        self.known: list[OffsetCommitResponsePartition] = []  # of partitions that exist
        self.offsets: list[NewOffset] = []

    def is_known(self, topic: OffsetCommitRequestTopic) -> bool:
        return self._image(topic) is not None

    def _image(self, topic: OffsetCommitRequestTopic) -> TopicImage | None:
        if self._by_id is None:
            return self._topics.get(topic.name)
        return self._by_id.get(topic.topic_id)

    def distinct(self, topic: OffsetCommitRequestTopic) -> OffsetCommitRequestTopic:
        """With the last row of each partition; those of partitions that do not exist all stay."""
        image = self._image(topic)
        count = 0 if image is None else len(image.partitions)
        last = {row.partition_index: row for row in topic.partitions}
        return OffsetCommitRequestTopic(
            name=topic.name,
            partitions=[
                row
                for row in topic.partitions
                if row is last[row.partition_index] or not 0 <= row.partition_index < count
            ],
        )

    def topic(self, topic: OffsetCommitRequestTopic) -> OffsetCommitResponseTopic:
        image = self._image(topic)
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if image is None and self._by_id is not None:
            missing = ErrorCode.UNKNOWN_TOPIC_ID
        return OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[self._partition(image, row, missing) for row in topic.partitions],
        )

    def _partition(
        self, image: TopicImage | None, row: OffsetCommitRequestPartition, missing: ErrorCode
    ) -> OffsetCommitResponsePartition:
        index = row.partition_index
        if image is None or not 0 <= index < len(image.partitions):
            return OffsetCommitResponsePartition(partition_index=index, error_code=missing)
        answer = OffsetCommitResponsePartition(partition_index=index)
        self.known.append(answer)
        metadata = row.committed_metadata or ""
        if len(metadata) > self._metadata_max:
            answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            return answer
        commit_timestamp_ms = row.commit_timestamp
        if commit_timestamp_ms == -1:
            commit_timestamp_ms = self._now_ms
        committed = CommittedOffset(
            row.committed_offset,
            row.committed_leader_epoch,
            metadata,
            commit_timestamp_ms,
            self._expire_timestamp_ms,
        )
        self.offsets.append((image.name, index, committed))
        return answer

    def fail(self, code: ErrorCode) -> None:
        for answer in self.known:
            answer.error_code = code
