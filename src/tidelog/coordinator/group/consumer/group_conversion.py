"""Groups that go over to the other protocol while they have members (KIP-848).

Upgrade: a consumer-protocol member joins a classic group of consumers. The classic members stay,
as members that use the classic protocol, in the epoch of their generation and with the partitions
of their last assignment.

Downgrade: the last consumer-protocol member leaves. The others become a classic group in the
generation of the group epoch, with their targets for assignments; it rebalances at once.

Either way one batch ends the old group and begins the new one; committed offsets are not touched.
What a classic member says and hears is in the embedded ConsumerProtocol: an i16 version, then the
message in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tidelog.coordinator.group.classic.classic_group import (
    ClassicGroup,
    ClassicGroupMember,
    group_metadata,
    group_tombstone,
)
from tidelog.coordinator.group.consumer import records
from tidelog.coordinator.group.consumer.consumer_group_draft import ConsumerGroupDraft
from tidelog.coordinator.group.consumer.consumer_group_member import (
    NOTHING,
    ClassicSide,
    ConsumerGroupMember,
    Held,
    Partitions,
    held_in_epoch,
)
from tidelog.coordinator.group.group import CONSUMER_PROTOCOL_TYPE, Topics
from tidelog.protocol.errors import DecodeError
from tidelog.protocol.messages.classic_group_records import GroupMetadataValue, MemberMetadata
from tidelog.protocol.messages.consumer_group_heartbeat import TopicPartitions
from tidelog.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from tidelog.types import Uuid

if TYPE_CHECKING:
    from tidelog.coordinator.group.consumer.consumer_group import ConsumerGroup
    from tidelog.coordinator.stored_record import CoordinatorRecord

_VERSION_BYTES: Final = 2

NamedPartitions = ConsumerProtocolAssignmentTopicPartition | (
    ConsumerProtocolSubscriptionTopicPartition
)


# The embedded protocol


def _embedded_version(data: bytes, newest: int) -> int:
    """Newer versions only add to the end, so that ours can be read of them."""
    if len(data) < _VERSION_BYTES:
        raise DecodeError("an embedded message has no version")
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if version < 0:
        raise DecodeError(f"an embedded message has version {version}")
    return min(version, newest)


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    version = _embedded_version(metadata, ConsumerProtocolSubscription.MAX_VERSION)
    return ConsumerProtocolSubscription.decode(memoryview(metadata), _VERSION_BYTES, version)


def _read_assignment(data: bytes) -> list[ConsumerProtocolAssignmentTopicPartition]:
    if not data:
        return []  # a member that has not got any yet
    version = _embedded_version(data, ConsumerProtocolAssignment.MAX_VERSION)
    message = ConsumerProtocolAssignment.decode(memoryview(data), _VERSION_BYTES, version)
    return message.assigned_partitions


def encode_assignment(partitions: Partitions | Held, metadata: bytes, topics: Topics) -> bytes:
    """In the version that the member's subscription has."""
    version = _embedded_version(metadata, ConsumerProtocolAssignment.MAX_VERSION)
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(
                topic=topics.by_id[topic_id].name, partitions=sorted(numbers)
            )
            for topic_id, numbers in partitions.items()
            if topic_id in topics.by_id
        ]
    )
    return version.to_bytes(_VERSION_BYTES, "big") + bytes(message.encode(version))


def owned_rows(subscription: ConsumerProtocolSubscription, topics: Topics) -> list[TopicPartitions]:
    """The partitions that a classic member says it owns, by topic id."""
    return [
        TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
        for topic_id, numbers in _by_id(subscription.owned_partitions, topics).items()
    ]


def _by_id(rows: Iterable[NamedPartitions], topics: Topics) -> dict[Uuid, frozenset[int]]:
    found: dict[Uuid, frozenset[int]] = {}
    for row in rows:
        topic = topics.topics.get(row.topic)
        if topic is not None and row.partitions:
            found[topic.topic_id] = frozenset(row.partitions)
    return found


# Upgrade


def upgraded(group: ClassicGroup, topics: Topics) -> ConsumerGroupDraft:
    """The classic group as a consumer group; DecodeError if its members' metadata is no use."""
    tombstone = group_tombstone(group.group_id)
    draft = ConsumerGroupDraft.of_new_group(group.group_id, group.shard_index, [tombstone])
    converted = [_converted(group, member, topics) for member in group.members.values()]
    group_id, epoch = group.group_id, group.generation_id
    for member, _ in converted:
        draft.add(records.member_metadata(group_id, member))
    draft.add(records.group_epoch(group_id, epoch))
    for member, assigned in converted:
        draft.add(records.target_assignment(group_id, member.member_id, assigned))
    draft.add(records.target_epoch(group_id, epoch))
    for member, _ in converted:
        draft.add(records.current_assignment(group_id, member))
    return draft


def _converted(
    group: ClassicGroup, member: ClassicGroupMember, topics: Topics
) -> tuple[ConsumerGroupMember, dict[Uuid, frozenset[int]]]:
    metadata = member.protocols[0][1]
    if group.protocol_name is not None:
        metadata = dict(member.protocols).get(group.protocol_name, metadata)
    subscription = read_subscription(metadata)
    assigned = _by_id(_read_assignment(member.assignment), topics)
    epoch = group.generation_id
    converted = ConsumerGroupMember(
        member.member_id,
        member_epoch=epoch,
        previous_member_epoch=epoch,
        assigned=held_in_epoch(assigned, epoch),
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        subscribed_topic_names=frozenset(subscription.topics),
        classic=ClassicSide(member.session_timeout_ms, tuple(member.protocols)),
    )
    return converted, assigned


# Downgrade


def downgrade_records(
    group: ConsumerGroup, leaving: Iterable[str], topics: Topics, now_ms: int
) -> list[CoordinatorRecord]:
    """The consumer group, without those who leave, as a classic group."""
    gone = set(leaving)
    staying = [member for member in group.members.values() if member.member_id not in gone]
    return [
        *records.group_tombstones(group),
        group_metadata(group.group_id, _classic_value(group, staying, topics, now_ms)),
    ]


def _classic_value(
    group: ConsumerGroup, members: list[ConsumerGroupMember], topics: Topics, now_ms: int
) -> GroupMetadataValue:
    protocol_name = _common_protocol(members)
    rows = []
    for member in members:
        assert member.classic is not None, "a consumer-protocol member cannot be in a classic group"
        metadata = dict(member.classic.protocols)[protocol_name]
        target = group.target.get(member.member_id, NOTHING)
        rows.append(
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.classic.session_timeout_ms,
                subscription=metadata,
                assignment=encode_assignment(target, metadata, topics),
            )
        )
    return GroupMetadataValue(
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation=group.group_epoch,
        protocol=protocol_name,
        leader=members[0].member_id,
        current_state_timestamp=now_ms,
        members=rows,
    )


def _common_protocol(members: list[ConsumerGroupMember]) -> str:
    """The first member's favourite of those that all have; there is one, by JoinGroup's checks."""
    supported = [
        [name for name, _ in member.classic.protocols] for member in members if member.classic
    ]
    return next(name for name in supported[0] if all(name in names for names in supported))
