"""ControlledShutdown v0-v3: a broker that is about to stop asks for its leaderships to be moved.

Behaviour
- Served by the active controller; others answer NOT_CONTROLLER. The answer names the partitions
  that the broker still leads, for want of another replica in sync.
Versions: v0 has a header without client id, v2 broker epoch, v3 flexible.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)


async def handle(
    context: RequestContext, request: ControlledShutdownRequest
) -> ControlledShutdownResponse:
    cluster = context.broker.cluster
    if cluster is None or not cluster.is_controller:
        return ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER)
    return await cluster.controller.controlled_shutdown(request)
