"""ListPartitionReassignments v0: which partitions are being given other replicas.

Behaviour
- Null stands for all partitions. Partitions that are not being reassigned, or do not exist, are
  left out of the answer.
- In a cluster the active controller answers; everybody else answers NOT_CONTROLLER. On a lone
  broker there are never any.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


async def handle(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    controller = context.broker.controller
    if controller is None:
        return ListPartitionReassignmentsResponse(error_message=None)
    return await controller.list_partition_reassignments(request)
