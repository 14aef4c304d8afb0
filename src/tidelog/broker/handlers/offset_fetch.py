"""OffsetFetch v0-v10: the offsets that groups have committed.

Behaviour
- Answered from memory. A partition without an offset, an unknown group and (before v10) an unknown
  topic are no errors: the offset is -1. Null topics (v2+) mean all that the group has.
- v8+ asks for several groups, each with its own error.
- Thousands of offsets are put into the answer in slices. Those of one group are all of one moment.
- require_stable (v7+): a partition with an offset in an open transaction is answered with
  UNSTABLE_OFFSET_COMMIT.
- A member of a consumer group (KIP-848) names itself and its epoch (v9+).
- All topics of a group are those that the client may DESCRIBE.
Checks, in order: DESCRIBE on the group (30), coordinator (14, 16), DESCRIBE on each topic (29; an
id must be known first); in a consumer group member (25) and epoch (113; 22 for a
classic member).
Versions: v2 null topics and an error for the group (v0, v1: in every partition), v3 throttle time,
v5 leader epoch, v6 flexible, v7 require_stable, v8 several groups, v9 member epochs, v10 topic ids
(100 for an unknown one).
In v0 a partition without an offset has error 3, and topics without partitions are left out.
Topics and partitions that are named twice are answered once. Member epochs mean nothing to classic
groups and are not looked at there.
Unlike Kafka
- v0 reads what is committed, by any version, so that clients as old as 0.8.1 work. Kafka 3.9 reads
  ZooKeeper, and refuses (35) without one.
- Groups (v8+), and topics and partitions in v10 too, are answered once: an answer must not be many
  times its request.
- Without groups (v8+), which Kafka never answers, the answer is empty: there is no place for an
  error outside of a group.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from tidelog.broker.authorized_operations import DESCRIBE, GROUP, TOPIC
from tidelog.broker.bulky_answers import EncodedAnswer, answer_in_slices
from tidelog.broker.context import RequestContext
from tidelog.coordinator.group.offsets import CommittedOffset, GroupOffsets
from tidelog.errors import ErrorCode, KafkaError
from tidelog.pending import Pending
from tidelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tidelog.types import ZERO_UUID

FIRST_VERSION_WITH_GROUP_ERROR = 2
FIRST_VERSION_WITH_GROUPS = 8
FIRST_VERSION_WITH_TOPIC_IDS = 10
NO_OFFSET = CommittedOffset(-1, -1, "", -1, expire_timestamp_ms=-1, log_offset=-1)
ROWS_AT_ONCE = 200  # more are read in slices, of a copy
ROWS_PER_STEP = 50

Topic = TypeVar("Topic", OffsetFetchRequestTopic, OffsetFetchRequestTopics)
AnyTopic = OffsetFetchRequestTopic | OffsetFetchRequestTopics
Row = TypeVar("Row", OffsetFetchResponsePartition, OffsetFetchResponsePartitions)


def handle(
    context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse | Pending[EncodedAnswer]:
    if context.api_version < FIRST_VERSION_WITH_GROUPS:
        response = OffsetFetchResponse()
        return answer_in_slices(
            context, _single_group(context, request, response), lambda: response
        )
    rows: list[OffsetFetchResponseGroup] = []

    def fetch_all() -> Iterator[None]:
        for group in _distinct_groups(request.groups):
            row = OffsetFetchResponseGroup(group_id=group.group_id)
            rows.append(row)
            yield from _group(context, group, request.require_stable, row)
            yield

    return answer_in_slices(context, fetch_all(), lambda: OffsetFetchResponse(groups=rows))


def _distinct_groups(groups: Iterable[OffsetFetchRequestGroup]) -> list[OffsetFetchRequestGroup]:
    """Each with all that is asked of it: an answer must not be many times its request."""
    merged: dict[tuple[str, str | None, int], OffsetFetchRequestGroup] = {}
    for group in groups:
        first = merged.setdefault((group.group_id, group.member_id, group.member_epoch), group)
        if group.topics is None or first.topics is None:
            first.topics = None
        elif first is not group:
            first.topics.extend(group.topics)
    for group in merged.values():
        if group.topics is not None:
            group.topics = _distinct(group.topics, lambda topic: (topic.name, topic.topic_id))
    return list(merged.values())


def _distinct(topics: Iterable[Topic], key: Callable[[Topic], Hashable]) -> list[Topic]:
    merged: dict[Hashable, tuple[Topic, dict[int, None]]] = {}
    for topic in topics:
        _, indexes = merged.setdefault(key(topic), (topic, {}))
        indexes.update(dict.fromkeys(topic.partition_indexes))
    for topic, indexes in merged.values():
        topic.partition_indexes = list(indexes)
    return [topic for topic, _ in merged.values()]


def _row(
    kind: type[Row], index: int, committed: CommittedOffset, code: ErrorCode = ErrorCode.NONE
) -> Row:
    return kind(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=code,
    )


def _row_count(offsets: GroupOffsets, topics: Sequence[AnyTopic] | None) -> int:
    if topics is None:
        return len(offsets)
    return sum(len(topic.partition_indexes) for topic in topics)


class _Reading(Generic[Row]):
    """A group's offsets as rows of an answer."""

    def __init__(
        self,
        offsets: GroupOffsets | None,
        topics: Sequence[AnyTopic] | None,
        require_stable: bool,
        row_class: type[Row],
    ) -> None:
        self._may_pause = offsets is None
        if offsets is not None and _row_count(offsets, topics) > ROWS_AT_ONCE:
            offsets = offsets.copy()
            self._may_pause = True
        self._offsets = offsets
        self._require_stable = require_stable
        self._row_class: type[Row] = row_class
        self._row_count = 0
        self.absent = ErrorCode.NONE  # the error of a partition without an offset

    def all_topics(self) -> Iterable[tuple[str, Iterable[int]]]:
        return () if self._offsets is None else self._offsets.topics().items()

    def add_refused(self, rows: list[Row], indexes: Iterable[int], code: ErrorCode) -> None:
        rows.extend(_row(self._row_class, index, NO_OFFSET, code) for index in indexes)

    def add_rows(self, rows: list[Row], topic: str, indexes: Iterable[int]) -> Iterator[None]:
        for index in indexes:
            rows.append(self._read(topic, index))
            self._row_count += 1
            if self._row_count % ROWS_PER_STEP == 0 and self._may_pause:
                yield

    def _read(self, topic: str, index: int) -> Row:
        offsets = self._offsets
        if offsets is None:
            return _row(self._row_class, index, NO_OFFSET, self.absent)
        if self._require_stable and offsets.is_unstable(topic, index):
            return _row(self._row_class, index, NO_OFFSET, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        committed = offsets.get(topic, index)
        if committed is None:
            return _row(self._row_class, index, NO_OFFSET, self.absent)
        return _row(self._row_class, index, committed)


def _single_group(
    context: RequestContext, request: OffsetFetchRequest, response: OffsetFetchResponse
) -> Iterator[None]:
    version = context.api_version
    topics = request.topics
    if topics is not None:
        topics = _distinct(topics, lambda topic: topic.name)
    try:
        _must_describe(context, request.group_id)
        offsets = context.broker.groups.offsets_of(request.group_id)
    except KafkaError as error:
        if version >= FIRST_VERSION_WITH_GROUP_ERROR:
            response.error_code = error.code
        else:
            response.topics = _failed_topics(topics or (), error.code)
        return
    reading = _Reading(offsets, topics, request.require_stable, OffsetFetchResponsePartition)
    if version == 0:
        reading.absent = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topics is None:
        topics = [
            OffsetFetchRequestTopic(name=name, partition_indexes=list(partitions))
            for name, partitions in reading.all_topics()
            if context.may_quietly(DESCRIBE, TOPIC, name)
        ]
    for topic in topics:
        if topic.partition_indexes or version > 0:
            row = OffsetFetchResponseTopic(name=topic.name)
            response.topics.append(row)
            if context.may(DESCRIBE, TOPIC, topic.name):
                yield from reading.add_rows(row.partitions, topic.name, topic.partition_indexes)
            else:
                denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                reading.add_refused(row.partitions, topic.partition_indexes, denied)


def _must_describe(context: RequestContext, group_id: str) -> None:
    if not context.may(DESCRIBE, GROUP, group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)


def _failed_topics(
    topics: Iterable[OffsetFetchRequestTopic], code: ErrorCode
) -> list[OffsetFetchResponseTopic]:
    return [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                _row(OffsetFetchResponsePartition, index, NO_OFFSET, code)
                for index in topic.partition_indexes
            ],
        )
        for topic in topics
    ]


def _group(
    context: RequestContext,
    group: OffsetFetchRequestGroup,
    require_stable: bool,
    answer: OffsetFetchResponseGroup,
) -> Iterator[None]:
    try:
        _must_describe(context, group.group_id)
        offsets = context.broker.groups.offsets_of(
            group.group_id, group.member_id, group.member_epoch
        )
    except KafkaError as error:
        answer.error_code = error.code
        return
    reading = _Reading(offsets, group.topics, require_stable, OffsetFetchResponsePartitions)
    if group.topics is None:
        yield from _every_topic(context, reading, answer)
    else:
        for topic in group.topics:
            yield from _topic(context, reading, topic, answer)


def _every_topic(
    context: RequestContext,
    reading: _Reading[OffsetFetchResponsePartitions],
    answer: OffsetFetchResponseGroup,
) -> Iterator[None]:
    has_ids = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    for name, partitions in reading.all_topics():
        image = context.broker.topics.topics.get(name)
        if has_ids and image is None:
            continue  # being deleted: it has no id to be named by
        if not context.may_quietly(DESCRIBE, TOPIC, name):
            continue
        topic_id = ZERO_UUID if image is None else image.topic_id
        row = OffsetFetchResponseTopics(name=name, topic_id=topic_id)
        answer.topics.append(row)
        yield from reading.add_rows(row.partitions, name, partitions)


def _topic(
    context: RequestContext,
    reading: _Reading[OffsetFetchResponsePartitions],
    topic: OffsetFetchRequestTopics,
    answer: OffsetFetchResponseGroup,
) -> Iterator[None]:
    name = topic.name
    row = OffsetFetchResponseTopics(topic_id=topic.topic_id)
    answer.topics.append(row)
    if context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS:
        image = context.broker.topics.by_id.get(topic.topic_id)
        if image is None:
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
            reading.add_refused(row.partitions, topic.partition_indexes, unknown)
            return
        name = image.name
    row.name = name
    if not context.may(DESCRIBE, TOPIC, name):
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        reading.add_refused(row.partitions, topic.partition_indexes, denied)
        return
    yield from reading.add_rows(row.partitions, name, topic.partition_indexes)
