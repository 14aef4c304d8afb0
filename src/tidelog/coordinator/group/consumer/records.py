"""The records of __consumer_offsets for consumer groups (KIP-848), as Kafka writes them.

    type 3   ConsumerGroupMetadata                 the group epoch
    type 4   ConsumerGroupPartitionMetadata        the subscribed topics and their partition counts
    type 5   ConsumerGroupMemberMetadata           what a member said of itself
    type 6   ConsumerGroupTargetAssignmentMetadata the epoch of the target assignment
    type 7   ConsumerGroupTargetAssignmentMember   a member's target
    type 8   ConsumerGroupCurrentMemberAssignment  a member's epochs, state and partitions
    type 16  ConsumerGroupRegularExpression        the topics that a pattern stands for

All in version 0. Topics are written as type 4, as Kafka 3.9 and 4.0 do; 4.1 and later write a hash
of them into type 3 instead, which is read as "not known", so that the group looks again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from tidelog.coordinator.group.consumer.consumer_group_member import Held, Partitions
from tidelog.coordinator.stored_record import CoordinatorRecord
from tidelog.protocol.messages.consumer_group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicMetadata,
    TopicPartition,
    TopicPartitions,
)

if TYPE_CHECKING:
    from tidelog.coordinator.group.consumer.consumer_group import (
        ConsumerGroup,
        ResolvedPattern,
        SubscribedTopic,
    )
    from tidelog.coordinator.group.consumer.consumer_group_member import ConsumerGroupMember

CONSUMER_GROUP_RECORD_TYPES = {
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}


def group_epoch(group_id: str, epoch: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupMetadataKey(group_id=group_id), ConsumerGroupMetadataValue(epoch=epoch)
    )


def subscription_metadata(
    group_id: str, topics: Mapping[str, SubscribedTopic]
) -> CoordinatorRecord:
    rows = [
        TopicMetadata(
            topic_id=topic.topic_id, topic_name=name, num_partitions=topic.partition_count
        )
        for name, topic in sorted(topics.items())
    ]
    return CoordinatorRecord(
        ConsumerGroupPartitionMetadataKey(group_id=group_id),
        ConsumerGroupPartitionMetadataValue(topics=rows),
    )


def member_metadata(group_id: str, member: ConsumerGroupMember) -> CoordinatorRecord:
    classic = member.classic
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=None
        if classic is None
        else ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=name, metadata=metadata)
                for name, metadata in classic.protocols
            ],
        ),
    )
    key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    return CoordinatorRecord(key, value)


def target_epoch(group_id: str, epoch: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch),
    )


def target_assignment(group_id: str, member_id: str, target: Partitions) -> CoordinatorRecord:
    rows = [
        TopicPartition(topic_id=topic_id, partitions=sorted(numbers))
        for topic_id, numbers in target.items()
    ]
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(topic_partitions=rows),
    )


def current_assignment(group_id: str, member: ConsumerGroupMember) -> CoordinatorRecord:
    epoch = member.member_epoch
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state,
        assigned_partitions=list(_rows(member.assigned, epoch)),
        partitions_pending_revocation=list(_rows(member.revoking, epoch)),
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return CoordinatorRecord(key, value)


def _rows(held: Held, member_epoch: int) -> Iterator[TopicPartitions]:
    """Epochs are written where they are not the member's own."""
    for topic_id, partitions in held.items():
        epochs = list(partitions.values())
        yield TopicPartitions(
            topic_id=topic_id,
            partitions=list(partitions),
            assignment_epochs=None if all(e == member_epoch for e in epochs) else epochs,
        )


def resolved_pattern(group_id: str, regex: str, resolved: ResolvedPattern) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics),
            version=resolved.version,
            timestamp=resolved.timestamp_ms,
        ),
    )


def pattern_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    return CoordinatorRecord(key, None)


def member_tombstones(group_id: str, member_ids: Iterable[str]) -> list[CoordinatorRecord]:
    """In Kafka's order: what it holds, what it should hold, itself."""
    return [
        CoordinatorRecord(key(group_id=group_id, member_id=member_id), None)
        for member_id in member_ids
        for key in (
            ConsumerGroupCurrentMemberAssignmentKey,
            ConsumerGroupTargetAssignmentMemberKey,
            ConsumerGroupMemberMetadataKey,
        )
    ]


def group_tombstones(group: ConsumerGroup) -> list[CoordinatorRecord]:
    """Everything that the log holds of the group; the epoch's goes last and ends it."""
    group_id = group.group_id
    return [
        *member_tombstones(group_id, group.members),
        CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(pattern_tombstone(group_id, regex) for regex in group.patterns),
        CoordinatorRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None),
        CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id), None),
    ]
