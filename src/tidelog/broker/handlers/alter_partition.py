"""AlterPartition v0-v3: the leader of partitions asks the controller for other in-sync replicas.

Behaviour
- Served by the active controller; others answer NOT_CONTROLLER. The checks are the controller's.
Versions: v1 leader recovery state, v2 topic ids, v3 broker epochs of the replicas.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
)


async def handle(context: RequestContext, request: AlterPartitionRequest) -> AlterPartitionResponse:
    cluster = context.broker.cluster
    if cluster is None or not cluster.is_controller:
        return AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER)
    return await cluster.controller.alter_partition(request)
