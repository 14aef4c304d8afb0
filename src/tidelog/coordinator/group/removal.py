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

from tidelog.coordinator.group import records
from tidelog.coordinator.group.classic.classic_group import CONSUMER_PROTOCOL_TYPE
from tidelog.coordinator.group.classic.classic_states import ClassicGroupState
from tidelog.coordinator.group.consumer.consumer_group import ConsumerGroup
from tidelog.coordinator.group.offsets import NO_EXPIRY, CommittedOffset, GroupOffsets

if TYPE_CHECKING:
    from tidelog.coordinator.group.shard import AnyGroup
    from tidelog.coordinator.stored_record import CoordinatorRecord

TopicAndPartition = tuple[str, int]


def expired(
    group: AnyGroup,
    topic: str,
    partitions: Mapping[int, CommittedOffset],
    now_ms: int,
    retention_ms: int,
) -> list[int]:
    """Which of these partitions of a topic."""
    rule = _rule(group)
    if rule is None:
        return []
    subscribed, idle_since_ms = rule
    if topic in subscribed:
        return []
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


def _rule(group: AnyGroup) -> tuple[frozenset[str], int | None] | None:
    """The topics that stay, and since when the others count (None: since the commit)."""
    if isinstance(group, ConsumerGroup):
        return group.subscribed_topics, None
    if group.protocol_type is None:
        return frozenset(), None
    if group.state is ClassicGroupState.EMPTY:
        return frozenset(), group.state_timestamp_ms
    if (
        group.protocol_type == CONSUMER_PROTOCOL_TYPE
        and group.state is ClassicGroupState.STABLE
        and group.subscribed_topics is not None
    ):
        return group.subscribed_topics, None
    return None


def everything(offsets: GroupOffsets) -> Iterator[TopicAndPartition]:
    """What waits for a transaction too; some may come twice."""
    for topic, partition, _ in offsets:
        yield topic, partition
    yield from offsets.unstable_partitions()


def group_tombstones(group: AnyGroup) -> list[CoordinatorRecord]:
    """None for a classic group that has no record."""
    if isinstance(group, ConsumerGroup):
        return consumer_group_tombstones(group)
    return [records.group_tombstone(group.group_id)] if group.generation_id > 0 else []


def consumer_group_tombstones(group: ConsumerGroup) -> list[CoordinatorRecord]:
    from tidelog.coordinator.group.consumer.records import group_tombstones  # no need to start

    return group_tombstones(group)


def is_empty(group: AnyGroup) -> bool:
    """Without members, and nobody expected."""
    if isinstance(group, ConsumerGroup):
        return not group.members
    return group.state is ClassicGroupState.EMPTY and not group.pending_members
