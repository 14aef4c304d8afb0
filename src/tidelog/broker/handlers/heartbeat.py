"""Heartbeat v0-v4: a member lives, and learns whether its group rebalances.

Behaviour
- The member's session begins anew. REBALANCE_IN_PROGRESS means: rejoin.
- While the coordinator loads, the answer is no error: sessions begin anew after it.
Checks, in order: READ on the group (30), group id (24), coordinator (16), group and member (25),
instance id (82), generation (22), not rebalancing (27).
Versions: v1 throttle time, v3 static members, v4 flexible.
"""

from __future__ import annotations

from tidelog.broker.authorized_operations import GROUP, READ
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    if not context.may(READ, GROUP, request.group_id):
        return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return HeartbeatResponse(error_code=context.broker.groups.heartbeat(request))
