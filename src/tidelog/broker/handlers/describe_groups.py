"""DescribeGroups v0-v6: the state and members of classic groups.

Behaviour
- An unknown group is "Dead" and no error; from v6 on it is GROUP_ID_NOT_FOUND. So is a consumer
  group (KIP-848), which ConsumerGroupDescribe describes.
- Protocol, metadata and assignments are shown of a stable group only, as Kafka 3.9 does.
Checks, in order: DESCRIBE on the group (30), coordinator (14, 16).
Versions: v1 throttle time, v3 authorised operations, v4 instance ids, v5 flexible, v6 messages and
the operations on a group's configuration.
Unlike Kafka
- A group named twice is answered once: an answer must not be many times its request.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.broker.authorized_operations import (
    DESCRIBE,
    GROUP,
    GROUP_OPERATIONS,
    GROUP_OPERATIONS_WITHOUT_CONFIGS,
    NOT_REQUESTED,
)
from tidelog.broker.bulky_answers import EncodedAnswer, answer_in_slices
from tidelog.broker.context import RequestContext
from tidelog.coordinator.group.classic.classic_group import ClassicGroup, ClassicGroupState
from tidelog.errors import ErrorCode, KafkaError
from tidelog.pending import Pending
from tidelog.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

FIRST_VERSION_WITH_UNKNOWN_GROUPS = 6
FIRST_VERSION_WITH_GROUP_CONFIGS = 6


def handle(
    context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse | Pending[EncodedAnswer]:
    rows: list[DescribedGroup] = []
    knows_configs = context.api_version >= FIRST_VERSION_WITH_GROUP_CONFIGS
    operations = GROUP_OPERATIONS if knows_configs else GROUP_OPERATIONS_WITHOUT_CONFIGS

    def describe_all() -> Iterator[None]:
        for group_id in dict.fromkeys(request.groups):
            row = _row(context, group_id)
            if request.include_authorized_operations and not row.error_code:
                row.authorized_operations = context.authorized_operations(
                    operations, GROUP, group_id
                )
            rows.append(row)
            yield

    return answer_in_slices(context, describe_all(), lambda: DescribeGroupsResponse(groups=rows))


def _row(context: RequestContext, group_id: str) -> DescribedGroup:
    try:
        if not context.may(DESCRIBE, GROUP, group_id):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        groups = context.broker.groups
        group = groups.group_or_none(group_id)
        classic = groups.of_kind_or_none(ClassicGroup, group_id)
    except KafkaError as error:
        return DescribedGroup(
            error_code=error.code, group_id=group_id, authorized_operations=NOT_REQUESTED
        )
    if classic is not None:
        return _described(classic)
    row = DescribedGroup(
        group_id=group_id,
        group_state=ClassicGroupState.DEAD.value,
        authorized_operations=NOT_REQUESTED,
    )
    if context.api_version >= FIRST_VERSION_WITH_UNKNOWN_GROUPS:
        row.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        row.error_message = (
            f"Group {group_id} not found."
            if group is None
            else f"Group {group_id} is not a classic group."
        )
    return row


def _described(group: ClassicGroup) -> DescribedGroup:
    protocol_name = group.protocol_name if group.state is ClassicGroupState.STABLE else None
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol_name or "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=b"" if protocol_name is None else member.metadata(protocol_name),
                member_assignment=b"" if protocol_name is None else member.assignment,
            )
            for member in group.members.values()
        ],
        authorized_operations=NOT_REQUESTED,
    )
