"""StopReplica v0-v4: the controller has this broker stop, or delete, replicas.

Behaviour
- A replica that is stopped fetches no more and serves nothing; one that is deleted goes with its
  log. A replica that is not here is deleted all the same: its folder may be left from before.
- Each partition has its own error: FENCED_LEADER_EPOCH for an epoch older than the known one (a
  topic's deletion carries -2 and is always obeyed), UNKNOWN_SERVER_ERROR for what nobody expected,
  which is logged with its cause.
Checks, in order: CLUSTER_ACTION (31), broker epoch (77), controller epoch (11), leader epoch of
each partition.
Versions: v1 broker epoch and by topic, v2 flexible, v3 leader epochs and deletion by partition, v4
KRaft flag.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from tidelog.broker.cluster_member import must_be_in_cluster, must_obey, must_still_hold
from tidelog.broker.context import RequestContext
from tidelog.broker.leadership_changes import StoppedPartition
from tidelog.errors import KafkaError
from tidelog.protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from tidelog.types import NO_LEADER_EPOCH, TopicPartition

FIRST_VERSION_BY_TOPIC: Final = 1
FIRST_VERSION_WITH_EPOCHS: Final = 3


async def handle(context: RequestContext, request: StopReplicaRequest) -> StopReplicaResponse:
    try:
        cluster = must_be_in_cluster(context)
        async with cluster.orders:
            must_obey(cluster, request.controller_epoch, request.broker_epoch)
            outcomes = await cluster.leadership.stop(
                _stopped(request, context.api_version),
                partial(must_still_hold, cluster, request.controller_epoch, request.broker_epoch),
            )
    except KafkaError as error:
        return StopReplicaResponse(error_code=error.code)
    return StopReplicaResponse(
        partition_errors=[
            StopReplicaPartitionError(topic_name=topic, partition_index=index, error_code=code)
            for (topic, index), code in outcomes.items()
        ]
    )


def _stopped(request: StopReplicaRequest, version: int) -> Iterator[StoppedPartition]:
    if version >= FIRST_VERSION_WITH_EPOCHS:
        for state in request.topic_states:
            for row in state.partition_states:
                yield StoppedPartition(
                    TopicPartition(state.topic_name, row.partition_index),
                    row.leader_epoch,
                    row.delete_partition,
                )
        return
    delete = request.delete_partitions
    if version >= FIRST_VERSION_BY_TOPIC:
        for topic in request.topics:
            for index in topic.partition_indexes:
                yield StoppedPartition(TopicPartition(topic.name, index), NO_LEADER_EPOCH, delete)
        return
    for partition in request.ungrouped_partitions:
        yield StoppedPartition(
            TopicPartition(partition.topic_name, partition.partition_index), NO_LEADER_EPOCH, delete
        )
