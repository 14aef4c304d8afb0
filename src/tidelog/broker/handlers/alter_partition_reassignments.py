"""AlterPartitionReassignments v0-v1: give partitions other replicas, or stop doing so.

Behaviour
- The answer comes when the reassignment has begun; ListPartitionReassignments shows how it goes.
  Null replicas cancel. A reassignment under way is superseded. Rows are answered as they were
  asked for.
- In a cluster the active controller does it; everybody else answers NOT_CONTROLLER. On a lone
  broker there is nowhere to go: only the replicas as they are can be asked for.
Checks, in order: ALTER on the cluster (31), replicas are neither none, nor twice the same, nor
negative (39), those to be added are on live brokers (39), the replication factor stays if it must
(38), there is a reassignment to cancel (85), partition exists and its topic is not being deleted
(3), a replica in sync is kept (39).
Versions: v1 allow_replication_factor_change (KIP-860).
Unlike Kafka
- In a cluster the last row of a partition that is named twice counts, and both have its outcome.
"""

from __future__ import annotations

from functools import partial

from tidelog.broker.authorized_operations import ALTER
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
)


async def handle(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    # Imported here: a broker that is not asked this does not pay for the controller of clusters.
    from tidelog.controller.cluster.controller_apis import reassignment_results

    if not context.may_on_cluster(ALTER):
        denied = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        response = reassignment_results(request, lambda topic, row: denied)
        response.error_code, response.error_message = denied.code, denied.message
        return response
    controller = context.broker.controller
    if controller is not None:
        return await controller.alter_partition_reassignments(request)
    return reassignment_results(request, partial(_refusal, context))


def _refusal(context: RequestContext, topic: str, row: ReassignablePartition) -> KafkaError | None:
    if row.replicas is None:
        return KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    image = context.broker.topics.topics.get(topic)
    if image is None or not 0 <= row.partition_index < len(image.partitions):
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    if row.replicas != image.partitions[row.partition_index].replicas:
        return KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "This broker is the only one: its partitions cannot be given other replicas.",
        )
    return None
