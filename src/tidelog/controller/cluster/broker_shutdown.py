"""A broker that announces its stop: its leaderships go elsewhere first; a decision."""

from __future__ import annotations

from tidelog.controller.cluster import partition_machine, replica_machine
from tidelog.controller.cluster.context import Replica
from tidelog.controller.cluster.draft import Draft
from tidelog.controller.cluster.leader_election import ElectionStrategy
from tidelog.controller.cluster.replica_state import ReplicaState
from tidelog.errors import ErrorCode, KafkaError
from tidelog.types import NO_BROKER_EPOCH, TopicPartition


def shut_down(draft: Draft, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
    """The partitions that it still leads, for want of another replica in sync. Raises KafkaError.

    Partitions with one replica are left alone: nobody else could serve them.
    """
    state = draft.state
    broker = state.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"Broker id {broker_id} does not exist.")
    # Before v2 a request has no epoch.
    if broker_epoch != NO_BROKER_EPOCH and broker_epoch < broker.epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
    state.shutting_down.add(broker_id)
    movable = [
        partition
        for partition, _ in state.replicas_on((broker_id,))
        if len(state.replicas_of(partition)) > 1
        and partition in state.leadership
        and not state.is_to_be_deleted(partition.topic)
    ]
    led = [tp for tp in movable if state.leadership[tp].leader == broker_id]
    followed = [tp for tp in movable if state.leadership[tp].leader != broker_id]
    partition_machine.bring_online(draft, led, ElectionStrategy.CONTROLLED_SHUTDOWN)
    replica_machine.move(
        draft, [Replica(partition, broker_id) for partition in followed], ReplicaState.OFFLINE
    )
    return state.partitions_led_by(broker_id)
