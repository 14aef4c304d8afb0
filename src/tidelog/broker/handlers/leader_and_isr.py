"""LeaderAndIsr v0-v7: the controller says which partitions this broker leads and follows.

Behaviour
- Partitions are made as needed; a leader takes records at once, a follower copies from its leader.
  The coordinators of groups and transactions follow the leadership of their topics' partitions.
- Each partition has its own error: INCONSISTENT_TOPIC_ID, STALE_CONTROLLER_EPOCH for a leader epoch
  that is not newer than the known one, UNKNOWN_TOPIC_OR_PARTITION where this broker is no replica,
  KAFKA_STORAGE_ERROR. The last one also stands for whatever nobody expected, which is logged with
  its cause; the other partitions are obeyed. Kafka answers UNKNOWN_SERVER_ERROR for all of them.
- Overrides of topics that are new here are read from the metadata store first. Without them the
  partitions would be wrong, and with an error the controller would take the order for obeyed: while
  the store cannot be reached the connection is closed, and the controller sends it again.
Checks, in order: CLUSTER_ACTION (31), broker epoch (77), controller epoch (11), then those of each
partition.
Versions: v2 broker epoch, by topic; v3 replicas added and removed; v4 flexible; v5 topic ids and
type; v6 leader recovery state; v7 KRaft flag.
Not done: full requests (v5+) as a KRaft controller sends them while a cluster migrates.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from tidelog.broker.cluster_member import must_be_in_cluster, must_obey, must_still_hold
from tidelog.broker.context import CloseConnection, RequestContext
from tidelog.broker.leadership_changes import WantedPartition
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from tidelog.replication.partition import PartitionRegistration
from tidelog.types import ZERO_UUID, TopicPartition, Uuid

FIRST_VERSION_BY_TOPIC: Final = 2
FIRST_VERSION_WITH_TOPIC_IDS: Final = 5


async def handle(
    context: RequestContext, request: LeaderAndIsrRequest
) -> LeaderAndIsrResponse | CloseConnection:
    try:
        cluster = must_be_in_cluster(context)
        async with cluster.orders:
            must_obey(cluster, request.controller_epoch, request.broker_epoch)
            wanted = list(_wanted(request, context.api_version))
            try:
                await cluster.learn_topics({each.topic_partition.topic for each in wanted})
            except KafkaError as error:
                return CloseConnection(f"to be sent again: {error.message}")
            cluster.learn_addresses(request.live_leaders)
            outcomes = await cluster.leadership.apply(
                wanted,
                request.broker_epoch,
                partial(must_still_hold, cluster, request.controller_epoch, request.broker_epoch),
            )
    except KafkaError as error:
        return LeaderAndIsrResponse(error_code=error.code)
    return _response(context.api_version, wanted, outcomes)


def _wanted(request: LeaderAndIsrRequest, version: int) -> Iterator[WantedPartition]:
    if version < FIRST_VERSION_BY_TOPIC:
        for row in request.ungrouped_partition_states:
            yield _one(row.topic_name, ZERO_UUID, row)
        return
    for topic in request.topic_states:
        for row in topic.partition_states:
            yield _one(topic.topic_name, topic.topic_id, row)


def _one(topic: str, topic_id: Uuid, row: LeaderAndIsrPartitionState) -> WantedPartition:
    return WantedPartition(
        TopicPartition(topic, row.partition_index),
        topic_id,
        PartitionRegistration(
            row.leader, row.leader_epoch, row.replicas, row.isr, row.partition_epoch, row.is_new
        ),
    )


def _response(
    version: int, wanted: list[WantedPartition], outcomes: dict[TopicPartition, ErrorCode]
) -> LeaderAndIsrResponse:
    if version < FIRST_VERSION_WITH_TOPIC_IDS:
        return LeaderAndIsrResponse(
            partition_errors=[
                LeaderAndIsrPartitionError(topic_name=topic, partition_index=index, error_code=code)
                for (topic, index), code in outcomes.items()
            ]
        )
    topics: dict[Uuid, LeaderAndIsrTopicError] = {}
    for each in wanted:
        topic = topics.setdefault(each.topic_id, LeaderAndIsrTopicError(topic_id=each.topic_id))
        topic.partition_errors.append(
            LeaderAndIsrPartitionError(
                partition_index=each.topic_partition.partition,
                error_code=outcomes[each.topic_partition],
            )
        )
    return LeaderAndIsrResponse(topics=list(topics.values()))
