"""ConsumerGroupDescribe v0-v1: the state, epochs and members of consumer groups (KIP-848).

Behaviour
- Each member is shown with what it holds and with what it should hold; topics that were deleted
  are left out.
- A classic group is GROUP_ID_NOT_FOUND: DescribeGroups describes it.
Checks, in order: protocol enabled (35), DESCRIBE on the group (30), group id (24), coordinator (14,
16), group (69), DESCRIBE on all topics that members hold or should hold (29, as in Kafka 4).
Versions: v1 member type (0 classic, 1 consumer).
Unlike Kafka
- A group named twice is answered once: an answer must not be many times its request.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidelog.broker.authorized_operations import (
    DESCRIBE,
    GROUP,
    GROUP_OPERATIONS,
    NOT_REQUESTED,
    TOPIC,
)
from tidelog.broker.context import RequestContext
from tidelog.coordinator.group.consumer.consumer_group import ConsumerGroup, preferred_assignor
from tidelog.coordinator.group.consumer.consumer_group_member import NOTHING, ConsumerGroupMember
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from tidelog.types import Uuid

CLASSIC, CONSUMER = 0, 1


def handle(
    context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    rows = []
    for group_id in dict.fromkeys(request.group_ids):
        try:
            row = _described(context, _must_find(context, group_id))
            _must_see_topics(context, row)
            if request.include_authorized_operations:
                row.authorized_operations = context.authorized_operations(
                    GROUP_OPERATIONS, GROUP, group_id
                )
        except KafkaError as error:
            row = DescribedGroup(
                group_id=group_id,
                error_code=error.code,
                error_message=error.message,
                authorized_operations=NOT_REQUESTED,
            )
        rows.append(row)
    return ConsumerGroupDescribeResponse(groups=rows)


def _must_find(context: RequestContext, group_id: str) -> ConsumerGroup:
    groups = context.broker.groups
    if not groups.settings.consumer.is_enabled:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if not context.may(DESCRIBE, GROUP, group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    if groups.group_or_none(group_id) is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    group = groups.of_kind_or_none(ConsumerGroup, group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    return group


def _must_see_topics(context: RequestContext, row: DescribedGroup) -> None:
    names = {
        topic.topic_name
        for member in row.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }
    if not all(context.may(DESCRIBE, TOPIC, name) for name in sorted(names)):
        raise KafkaError(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "The group has topics that the client may not describe.",
        )


def _described(context: RequestContext, group: ConsumerGroup) -> DescribedGroup:
    default_assignor = next(iter(context.broker.groups.assignors))
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=preferred_assignor(group.members, default_assignor),
        members=[_member(context, group, member) for member in group.members.values()],
        authorized_operations=NOT_REQUESTED,
    )


def _member(context: RequestContext, group: ConsumerGroup, member: ConsumerGroupMember) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(context, member.assigned),
        target_assignment=_assignment(context, group.target.get(member.member_id, NOTHING)),
        member_type=CONSUMER if member.classic is None else CLASSIC,
    )


def _assignment(context: RequestContext, partitions: Mapping[Uuid, Collection[int]]) -> Assignment:
    by_id = context.broker.topics.by_id
    return Assignment(
        topic_partitions=[
            TopicPartitions(
                topic_id=topic_id, topic_name=by_id[topic_id].name, partitions=sorted(numbers)
            )
            for topic_id, numbers in partitions.items()
            if topic_id in by_id
        ]
    )
