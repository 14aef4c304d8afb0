"""ControlledShutdown v0-v3: a broker that is about to stop gives its leaderships away.

Behaviour
- For brokers in a cluster. The active controller moves what the broker leads to other replicas in
  sync, takes it out of the in-sync sets and answers with what it still leads.
- Everybody else, and a lone broker, answers STALE_CONTROLLER_EPOCH, as Kafka does.
Checks, in order: CLUSTER_ACTION (31), broker is registered (8), broker epoch (77).
Versions: v0 has a request header of its own, v2 broker epoch, v3 flexible.
"""

from __future__ import annotations

from tidelog.broker.authorized_operations import CLUSTER_ACTION
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)


async def handle(
    context: RequestContext, request: ControlledShutdownRequest
) -> ControlledShutdownResponse:
    if not context.may_on_cluster(CLUSTER_ACTION):
        return ControlledShutdownResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    controller = context.broker.controller
    if controller is None:
        return ControlledShutdownResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
    return await controller.controlled_shutdown(request)
