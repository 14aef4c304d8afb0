"""JoinGroup v0-v9: become, or stay, a member of a classic group.

Behaviour
- The answer waits until the next generation begins: after group.initial.rebalance.delay.ms for a
  group's first members, later when all members have rejoined or the largest rebalance timeout is
  over. The first to have joined is the leader and is given all members with their metadata.
- The protocol is what most members prefer among those that all support.
- From v4 on a dynamic member without an id is refused with MEMBER_ID_REQUIRED and an id, to come
  back with; it must do so within its session timeout.
- A static member (group_instance_id) that comes back without its id takes the place of its former
  self, without a rebalance unless the group's protocol would change; the former self is fenced.
- In a generation that has begun, a member that rejoins unchanged gets the same answer again.
Checks, in order: READ on the group (30), group id (24), coordinator (14, 16), session timeout
within group.min/max.session.timeout.ms (26), group and member known (25), group.max.size (81),
protocols (23: none, another type, none in common, or one named twice), instance id (82, 25). In a
consumer group (KIP-848) also a subscription that can be read (-1); a classic group takes any bytes.
Versions: v1 rebalance timeout (v0: the session timeout), v2 throttle time, v4 member id required,
v5 static members, v6 flexible, v7 protocol type and null protocol, v8 reason, v9 skip_assignment.
Unlike Kafka
- A request that another one by the same member supersedes is answered (27).
- A member that names a protocol twice is answered (23), once it has its id.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tidelog.broker.authorized_operations import GROUP, READ
from tidelog.broker.context import RequestContext
from tidelog.coordinator.group.classic.classic_group_membership import Joining
from tidelog.coordinator.group.results import JoinGroupResult
from tidelog.errors import ErrorCode
from tidelog.pending import Pending
from tidelog.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

FIRST_VERSION_WITH_MEMBER_ID_REQUIRED: Final = 4
FIRST_VERSION_WITH_NULL_PROTOCOL: Final = 7
FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT: Final = 9


def handle(
    context: RequestContext, request: JoinGroupRequest
) -> JoinGroupResponse | Pending[JoinGroupResponse]:
    version = context.api_version
    if not context.may(READ, GROUP, request.group_id):
        return _refused(version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    rebalance_timeout_ms = request.rebalance_timeout_ms
    if version == 0:
        rebalance_timeout_ms = request.session_timeout_ms
    joining = Joining(
        requires_known_member_id=version >= FIRST_VERSION_WITH_MEMBER_ID_REQUIRED,
        supports_skipping_assignment=version >= FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        client_host=f"/{context.session.client_host}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=[(protocol.name, protocol.metadata) for protocol in request.protocols],
    )
    result = context.broker.groups.join_group(request.group_id, joining)
    if isinstance(result, Pending):
        return result.map(partial(_response, version))
    return _response(version, result)


def _refused(version: int, code: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code,
        generation_id=-1,
        protocol_name=None if version >= FIRST_VERSION_WITH_NULL_PROTOCOL else "",
    )


def _response(version: int, result: JoinGroupResult) -> JoinGroupResponse:
    protocol_name = result.protocol_name
    if protocol_name is None and version < FIRST_VERSION_WITH_NULL_PROTOCOL:
        protocol_name = ""
    return JoinGroupResponse(
        error_code=result.error_code,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata,
            )
            for member in result.members
        ],
    )
