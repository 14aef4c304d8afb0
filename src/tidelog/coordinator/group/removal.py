"""Which offsets and groups go: by age, by name, with their topic. Pure: decides, changes nothing.

Age. An offset that named its own expiry (OffsetCommit v2-v4) goes then. The others go after
offsets.retention.minutes, counted

    in a group without members          from when it lost its last member
    in a group that never had members   from the commit
    in a consumer group (KIP-848), and in a STABLE classic one of consumers
                                        from the commit, and only topics nobody is subscribed to
    in any other group                  not at all

A group goes once it has neither members nor offsets; if it has a record, a tombstone says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.coordinator.group import records
from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.group import CONSUMER_PROTOCOL_TYPE
from tidelog.coordinator.group.offsets import NO_EXPIRY, GroupOffsets
from tidelog.coordinator.group.states import GroupState

if TYPE_CHECKING:
    from tidelog.coordinator.group.shard import AnyGroup, GroupShard
    from tidelog.coordinator.stored_record import CoordinatorRecord

TopicAndPartition = tuple[str, int]


def expired(
    group: AnyGroup, offsets: GroupOffsets, now_ms: int, retention_ms: int
) -> list[TopicAndPartition]:
    rule = _rule(group)
    if rule is None:
        return []
    subscribed, idle_since_ms = rule
    gone = []
    for topic, partition, committed in offsets:
        if topic in subscribed:
            continue
        if committed.expire_timestamp_ms != NO_EXPIRY:
            is_expired = now_ms >= committed.expire_timestamp_ms
        else:
            since_ms = committed.commit_timestamp_ms if idle_since_ms is None else idle_since_ms
            is_expired = now_ms - since_ms >= retention_ms
        if is_expired:
            gone.append((topic, partition))
    return gone


def _rule(group: AnyGroup) -> tuple[frozenset[str], int | None] | None:
    """The topics that stay, and since when the others count (None: since the commit)."""
    if isinstance(group, ConsumerGroup):
        return group.subscribed_topics, None
    if group.protocol_type is None:
        return frozenset(), None
    if group.state is GroupState.EMPTY:
        return frozenset(), group.state_timestamp_ms
    if (
        group.protocol_type == CONSUMER_PROTOCOL_TYPE
        and group.state is GroupState.STABLE
        and group.subscribed_topics is not None
    ):
        return group.subscribed_topics, None
    return None


def of_topic(offsets: GroupOffsets, topic: str) -> list[TopicAndPartition]:
    return [(topic, partition) for partition in offsets.topics().get(topic, ())]


def everything(offsets: GroupOffsets) -> list[TopicAndPartition]:
    """What waits for a transaction too."""
    committed = [(topic, partition) for topic, partition, _ in offsets]
    return list(dict.fromkeys((*committed, *offsets.unstable_partitions())))


def tombstones(
    shard: GroupShard, group: AnyGroup, gone: Iterable[TopicAndPartition]
) -> list[CoordinatorRecord]:
    """For these offsets and, if nothing is left of it then, for the group."""
    group_id = group.group_id
    doomed = set(gone)
    made = [records.offset_tombstone(group_id, topic, partition) for topic, partition in doomed]
    if is_forgotten_without(shard, group, doomed):
        if isinstance(group, ConsumerGroup):
            made.extend(consumer_group_tombstones(group))
        elif group.generation_id > 0:
            made.append(records.group_tombstone(group_id))
    return made


def consumer_group_tombstones(group: ConsumerGroup) -> list[CoordinatorRecord]:
    from tidelog.coordinator.group.consumer.records import group_tombstones  # no need to start

    return group_tombstones(group)


def is_forgotten_without(
    shard: GroupShard, group: AnyGroup, doomed: set[TopicAndPartition]
) -> bool:
    """Whether the group goes with these offsets."""
    if not is_empty(group):
        return False
    offsets = shard.offsets.get(group.group_id)
    return offsets is None or doomed.issuperset(everything(offsets))


def is_empty(group: AnyGroup) -> bool:
    """Without members, and nobody expected."""
    if isinstance(group, ConsumerGroup):
        return not group.members
    return group.state is GroupState.EMPTY and not group.pending_members
