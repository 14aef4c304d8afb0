"""AlterPartition v0-v3: a leader asks for another in-sync set.

Behaviour
- For brokers in a cluster. The active controller answers; everybody else, and a lone broker,
  answers NOT_CONTROLLER.
- The set is in the store before the answer; the new partition epoch is in it.
Checks, in order: CLUSTER_ACTION (31), then those of `controller/cluster/alter_partition.py`.
Versions: v1 leader recovery state, v2 topic ids, v3 broker epochs of the members (KIP-903).
"""

from __future__ import annotations

from tidelog.broker.authorized_operations import CLUSTER_ACTION
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
)


async def handle(context: RequestContext, request: AlterPartitionRequest) -> AlterPartitionResponse:
    if not context.may_on_cluster(CLUSTER_ACTION):
        return AlterPartitionResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    controller = context.broker.controller
    if controller is None:
        return AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER)
    return await controller.alter_partition(request, context.api_version)
