"""OffsetCommit v0-v10: keep offsets for a group.

Behaviour
- Written to __consumer_offsets as one batch and answered when it is committed; a member's session
  begins anew. Before that, thousands of rows are looked at in slices.
- Rows are answered in the order asked for, each with its own error; a topic without partitions is
  left out, unless it is unknown. A partition named twice is answered twice; in v1, which Kafka 4
  has no more, its last row counts and is answered once, as by Kafka 3.9.
- A group without members takes commits from anybody (generation -1); that makes the group if need
  be. The empty group id is allowed. A member may commit while its group waits for joins, but not
  between join and sync (27).
- A member of a consumer group (KIP-848) names its epoch; for partitions it has held since, an older
  one will do (KIP-1251).
- retention_time_ms (v2-v4) gives the offsets an expiry of their own.
Checks, in order: READ on the group (30), READ on the topic (29), topic and partition exist (3; by
id 100, before READ), coordinator (14, 16), group known (22;
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

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tidelog.broker.authorized_operations import GROUP, READ, TOPIC
from tidelog.broker.bulky_answers import EncodedAnswer
from tidelog.broker.context import RequestContext
from tidelog.broker.offset_rows import OffsetRows
from tidelog.coordinator.group.results import commit_error
from tidelog.errors import ErrorCode, KafkaError
from tidelog.pending import Pending
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from tidelog.controller.topics import TopicImage

VERSION_WITH_DISTINCT_ROWS: Final = 1
FIRST_VERSION_WITH_MEMBER_EPOCH: Final = 9
FIRST_VERSION_WITH_TOPIC_IDS: Final = 10


def handle(
    context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Pending[OffsetCommitResponse] | Pending[EncodedAnswer]:
    if not context.may(READ, GROUP, request.group_id):
        return _refused(request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return _Commit(context, request).answer(request.topics)


def _refused(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(topics=[_refused_topic(topic, code) for topic in request.topics])


def _refused_topic(topic: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=row.partition_index, error_code=code)
            for row in topic.partitions
        ],
    )


def _by_name(topics: list[OffsetCommitRequestTopic]) -> list[OffsetCommitRequestTopic]:
    rows: dict[str, list[OffsetCommitRequestPartition]] = {}
    for topic in topics:
        rows.setdefault(topic.name, []).extend(topic.partitions)
    return [OffsetCommitRequestTopic(name=name, partitions=some) for name, some in rows.items()]


class _Commit(OffsetRows[OffsetCommitResponsePartition, OffsetCommitResponse]):
    __slots__ = ("_has_ids", "_request", "_response")

    def __init__(self, context: RequestContext, request: OffsetCommitRequest) -> None:
        super().__init__(context, request.group_id, request.retention_time_ms)
        self._request = request
        self._response = OffsetCommitResponse()
        self._has_ids = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS

    def look(self) -> Iterator[None]:
        answers = self._response.topics = []
        in_slices = self.records is not None
        topics = self._request.topics
        if self.context.api_version == VERSION_WITH_DISTINCT_ROWS:
            topics = [self._distinct(topic) for topic in _by_name(topics)]
        for topic in topics:
            image = self._image(topic)
            if not self._may_read(topic, image):
                answers.append(_refused_topic(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            elif topic.partitions or image is None:
                answer = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
                answers.append(answer)
                rows = answer.partitions
                self.begin_topic(image)
                missing = self._missing(image)
                for row in topic.partitions:
                    rows.append(self._row(row, missing))
                    if in_slices:
                        yield
            if in_slices:
                yield

    def _image(self, topic: OffsetCommitRequestTopic) -> TopicImage | None:
        topics = self.context.broker.topics
        return topics.by_id.get(topic.topic_id) if self._has_ids else topics.topics.get(topic.name)

    def _may_read(self, topic: OffsetCommitRequestTopic, image: TopicImage | None) -> bool:
        if not self._has_ids:
            return self.context.may(READ, TOPIC, topic.name)
        return image is None or self.context.may(READ, TOPIC, image.name)

    def _distinct(self, topic: OffsetCommitRequestTopic) -> OffsetCommitRequestTopic:
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

    def _missing(self, image: TopicImage | None) -> ErrorCode:
        """What is said of partitions that do not exist."""
        if image is None and self._has_ids:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _row(
        self, row: OffsetCommitRequestPartition, missing: ErrorCode
    ) -> OffsetCommitResponsePartition:
        index = row.partition_index
        answer = OffsetCommitResponsePartition(partition_index=index)
        if self.exists(index):
            self.add(
                answer,
                index,
                row.committed_offset,
                row.committed_leader_epoch,
                row.committed_metadata,
                row.commit_timestamp,
            )
        else:
            answer.error_code = missing
        return answer

    def write(self) -> OffsetCommitResponse | Pending[OffsetCommitResponse]:
        request, response = self._request, self._response
        if not self.known:
            return response
        try:
            flushed = self.context.broker.groups.commit_offsets(
                request.group_id,
                self.offsets,
                generation_id=request.generation_id_or_member_epoch,
                member_id=request.member_id,
                group_instance_id=request.group_instance_id,
                knows_member_epochs=self.context.api_version >= FIRST_VERSION_WITH_MEMBER_EPOCH,
                records=self.records,
            )
        except KafkaError as error:
            self.fail(error.code)
            return response
        if flushed is None:
            return response

        def finished(code: ErrorCode) -> OffsetCommitResponse:
            if code is not ErrorCode.NONE:
                self.fail(commit_error(code))
            return response

        return flushed.map(finished)
