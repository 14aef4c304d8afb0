"""Which offsets and groups go: by age, by name, with their topic. Pure: decides, changes nothing.

Age. An offset that named its own expiry (OffsetCommit v2-v4) goes then. The others go after
offsets.retention.minutes, counted

    in a group without members          from when it lost its last member
    in a group that never had members   from the commit
    in a consumer group (KIP-848), and in a STABLE classic one of consumers
                                        from the commit, and only topics nobody is subscribed to
    in any other group                  not at all

No offset goes by age while an open transaction is to replace it. With its topic, what waits for a
transaction goes too.

A group goes once it has neither members nor offsets; if it has a record, a tombstone says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tidelog.coordinator.group.offsets import NO_EXPIRY, CommittedOffset, GroupOffsets

if TYPE_CHECKING:
    from tidelog.coordinator.group.group import Group, TopicAndPartition


def expired(
    group: Group,
    topic: str,
    partitions: Mapping[int, CommittedOffset],
    now_ms: int,
    retention_ms: int,
) -> list[int]:
    """Which of these partitions of a topic."""
    expiry = group.offset_expiry()
    if expiry is None or topic in expiry.subscribed_topics:
        return []
    idle_since_ms = expiry.idle_since_ms
    gone = []
    for partition, committed in partitions.items():
        if committed.expire_timestamp_ms != NO_EXPIRY:
            is_expired = now_ms >= committed.expire_timestamp_ms
        else:
            since_ms = committed.commit_timestamp_ms if idle_since_ms is None else idle_since_ms
            is_expired = now_ms - since_ms >= retention_ms
        if is_expired:
            gone.append(partition)
    return gone


def everything(offsets: GroupOffsets) -> Iterator[TopicAndPartition]:
    """What waits for a transaction too; some may come twice."""
    for topic, partition, _ in offsets:
        yield topic, partition
    yield from offsets.unstable_partitions()
