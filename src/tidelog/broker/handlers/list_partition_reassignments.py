"""ListPartitionReassignments v0: which partitions are being given other replicas.

Behaviour
- Null stands for all partitions. Partitions that are not being reassigned, or do not exist, are
  left out of the answer.
- In a cluster the active controller answers; everybody else answers NOT_CONTROLLER. On a lone
  broker there are never any.
Checks, in order: DESCRIBE on the cluster (31).
"""

from __future__ import annotations

from tidelog.broker.authorized_operations import DESCRIBE
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


async def handle(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    if not context.may_on_cluster(DESCRIBE):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return ListPartitionReassignmentsResponse(error_code=code, error_message=code.text)
    controller = context.broker.controller
    if controller is None:
        return ListPartitionReassignmentsResponse(error_message=None)
    return await controller.list_partition_reassignments(request)
