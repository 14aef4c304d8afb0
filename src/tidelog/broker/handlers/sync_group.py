"""SyncGroup v0-v5: the leader hands in the assignment, every member gets its own.

Behaviour
- The answer waits until the leader's assignment is written to __consumer_offsets. In a group that
  has its assignment it comes at once.
- Members that the leader forgot get an empty assignment; members that it made up are ignored.
- A member that does not send it within the rebalance timeout is removed.
Checks, in order: protocol type and name given (v5: 23), READ on the group (30), group id (24),
coordinator (16; while it loads 27, for the member must rejoin), group and member (25), instance id
(82), generation (22), protocol type and name fit (23), not rebalancing (27).
Versions: v1 throttle time, v3 static members, v4 flexible, v5 protocol type and name.
"""

from __future__ import annotations

from tidelog.broker.authorized_operations import GROUP, READ
from tidelog.broker.context import RequestContext
from tidelog.coordinator.group.results import SyncGroupResult
from tidelog.errors import ErrorCode
from tidelog.pending import Pending
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

FIRST_VERSION_WITH_PROTOCOL = 5


def handle(
    context: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse | Pending[SyncGroupResponse]:
    if context.api_version >= FIRST_VERSION_WITH_PROTOCOL and (
        request.protocol_type is None or request.protocol_name is None
    ):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not context.may(READ, GROUP, request.group_id):
        return SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    result = context.broker.groups.sync_group(request)
    return result.map(_response) if isinstance(result, Pending) else _response(result)


def _response(result: SyncGroupResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error_code,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
