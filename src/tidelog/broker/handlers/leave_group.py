"""LeaveGroup v0-v5: members leave their group, which then rebalances.

Behaviour
- v3+ names several members, each with its own error; an admin may name static ones by instance id
  alone. A static member that merely restarts does not send it.
- A member that was given its id but has not joined yet may leave too.
Checks, in order: READ on the group (30), group id (24), coordinator (14, 16), then for each member:
known (25), instance id (82).
Versions: v1 throttle time, v3 several members and static ones, v4 flexible, v5 reason.
"""

from __future__ import annotations

from tidelog.broker.authorized_operations import GROUP, READ
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)

FIRST_VERSION_WITH_MEMBERS = 3


def handle(context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    if not context.may(READ, GROUP, request.group_id):
        return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    is_batch = context.api_version >= FIRST_VERSION_WITH_MEMBERS
    leaving: list[tuple[str, str | None, str | None]] = [(request.member_id, None, None)]
    if is_batch:
        leaving = [
            (each.member_id, each.group_instance_id, each.reason) for each in request.members
        ]
    try:
        outcomes = context.broker.groups.leave_group(request.group_id, leaving)
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.code)
    if not is_batch:
        return LeaveGroupResponse(error_code=outcomes[0])
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=member_id, group_instance_id=group_instance_id, error_code=code
            )
            for (member_id, group_instance_id, _), code in zip(leaving, outcomes, strict=True)
        ]
    )
