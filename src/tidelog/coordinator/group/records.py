"""The records of __consumer_offsets for offsets and classic groups, as Kafka 3.9 writes them.

    type 0, 1  OffsetCommitKey (group, topic, partition)  -> OffsetCommitValue
    type 2     GroupMetadataKey (group)                   -> GroupMetadataValue
    type 3-16  consumer groups: see `consumer.records`

Offsets are written as version 3, or as version 1 where the commit named its own expiry; groups as
version 3. Versions that only newer Kafkas know (4, with topic ids) are read but not written: Kafka
3.9 can take over the directory.
"""

from __future__ import annotations

from typing import Final

from tidelog.coordinator.group.offsets import NO_EXPIRY, CommittedOffset
from tidelog.coordinator.stored_record import Classes, CoordinatorRecord, RecordTypes
from tidelog.protocol.messages.classic_group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)


def _consumer_group_types() -> Classes:
    from tidelog.coordinator.group.consumer.records import CONSUMER_GROUP_RECORD_TYPES

    return CONSUMER_GROUP_RECORD_TYPES


GROUP_RECORD_TYPES: Final = RecordTypes(
    {
        0: (OffsetCommitKey, OffsetCommitValue),
        1: (OffsetCommitKey, OffsetCommitValue),
        2: (GroupMetadataKey, GroupMetadataValue),
    },
    _consumer_group_types,
)

_OFFSET_VERSION: Final = 3
_OFFSET_VERSION_WITH_EXPIRY: Final = 1
_GROUP_VERSION: Final = 3


def offset_commit(
    group_id: str, topic: str, partition: int, committed: CommittedOffset
) -> CoordinatorRecord:
    expire_timestamp_ms = committed.expire_timestamp_ms
    if expire_timestamp_ms == NO_EXPIRY:
        version, leader_epoch = _OFFSET_VERSION, committed.leader_epoch
    else:
        version, leader_epoch = _OFFSET_VERSION_WITH_EXPIRY, -1  # it has no leader epoch
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=expire_timestamp_ms,
    )
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return CoordinatorRecord(key, value, version)


def committed_offset(value: OffsetCommitValue, log_offset: int) -> CommittedOffset:
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        log_offset,
    )


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        OffsetCommitKey(group=group_id, topic=topic, partition=partition), None
    )


def group_metadata(group_id: str, value: GroupMetadataValue) -> CoordinatorRecord:
    return CoordinatorRecord(GroupMetadataKey(group=group_id), value, _GROUP_VERSION)


def group_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(GroupMetadataKey(group=group_id), None)
