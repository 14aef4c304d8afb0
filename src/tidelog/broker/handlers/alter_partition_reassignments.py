"""AlterPartitionReassignments v0-v1: give partitions other replicas, or stop doing so.

Behaviour
- The answer comes when the reassignment has begun; ListPartitionReassignments shows how it goes.
  Null replicas cancel. A reassignment under way is superseded. Rows are answered as they were
  asked for.
- In a cluster the active controller does it; everybody else answers NOT_CONTROLLER. On a lone
  broker there is nowhere to go: only the replicas as they are can be asked for.
Checks, in order: replicas are neither none, nor twice the same, nor negative (39), those to be
added are on live brokers (39), the replication factor stays if it must (38), there is a
reassignment to cancel (85), partition exists and its topic is not being deleted (3).
Versions: v1 allow_replication_factor_change (KIP-860).
Unlike Kafka
- Of a partition named twice the last row counts, and both are answered with its outcome.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from tidelog.types import TopicPartition


async def handle(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    controller = context.broker.controller
    if controller is not None:
        return await controller.alter_partition_reassignments(request)
    # Imported here: a broker that is not asked this does not pay for the controller of clusters.
    from tidelog.controller.cluster.answers import reassignment_results

    results: dict[TopicPartition, KafkaError | None] = {}
    for topic in request.topics:
        for row in topic.partitions:
            partition = TopicPartition(topic.name, row.partition_index)
            results[partition] = _refusal(context, partition, row.replicas)
    return reassignment_results(request, results)


def _refusal(
    context: RequestContext, partition: TopicPartition, replicas: list[int] | None
) -> KafkaError | None:
    if replicas is None:
        return KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    image = context.broker.topics.topics.get(partition.topic)
    known = image is not None and 0 <= partition.partition < len(image.partitions)
    if image is None or not known:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    if replicas != image.partitions[partition.partition].replicas:
        return KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "This broker is the only one: its partitions cannot be given other replicas.",
        )
    return None
