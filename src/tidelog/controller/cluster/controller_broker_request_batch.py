"""The requests that carry a decision to the brokers; pure.

While a decision is made, a `ControllerBrokerRequestBatch` notes only which brokers have to be told
of what. `control_requests` makes the requests when the decision is done, so a partition that is
changed twice is told once, as it ended up.

To one broker, in this order
1. UpdateMetadata v8 with the brokers, when these have changed: a broker must know the others before
   it can follow them. One that has just come gets every partition with it.
2. LeaderAndIsr v7 with the partitions that it leads or follows.
3. UpdateMetadata v8 with the partitions that have changed, to everyone.
4. StopReplica v4 with the replicas that it stops, and perhaps deletes.

Each carries the controller's epoch, by which brokers fence a controller that has lost its place,
and the broker's own epoch, by which a broker tells requests meant for its life before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from tidelog.controller.cluster.controller_context import ControllerContext
from tidelog.controller.cluster.leader_and_isr import LEADER_DURING_DELETE, LeaderAndIsr
from tidelog.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from tidelog.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from tidelog.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tidelog.types import TopicPartition

LEADER_AND_ISR_VERSION: Final = 7
UPDATE_METADATA_VERSION: Final = 8
STOP_REPLICA_VERSION: Final = 4
SECURITY_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
Request = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


class ControllerBrokerRequestBatch:
    def __init__(self) -> None:
        # By broker: partitions to lead or follow, and whether the replica is new there.
        self.leader_and_isr: dict[int, dict[TopicPartition, bool]] = {}
        # By broker: partitions to stop, and whether to delete them.
        self.stop_replica: dict[int, dict[TopicPartition, bool]] = {}
        self.metadata_of: dict[TopicPartition, None] = {}  # for all brokers
        self.brokers_changed = False  # all brokers need the list of brokers first
        self.newcomers: set[int] = set()  # brokers that need the metadata of every partition

    def tell_replicas(
        self, broker_ids: Iterable[int], partition: TopicPartition, *, is_new: bool = False
    ) -> None:
        """The brokers lead or follow the partition; all brokers hear of its leader."""
        for broker_id in broker_ids:
            partitions = self.leader_and_isr.setdefault(broker_id, {})
            partitions[partition] = is_new or partitions.get(partition, False)
        self.metadata_of[partition] = None

    def stop(
        self, broker_ids: Iterable[int], partition: TopicPartition, *, delete: bool = False
    ) -> None:
        for broker_id in broker_ids:
            partitions = self.stop_replica.setdefault(broker_id, {})
            partitions[partition] = delete or partitions.get(partition, False)

    def tell_everyone(self, partitions: Iterable[TopicPartition]) -> None:
        self.metadata_of.update(dict.fromkeys(partitions))

    def introduce_brokers(self, newcomers: Collection[int] = ()) -> None:
        self.brokers_changed = True
        self.newcomers.update(newcomers)


class Sender(NamedTuple):
    """Who sends, and by which listener brokers reach each other."""

    controller_id: int
    listener_name: str


class ControlRequest(NamedTuple):
    request: Request
    version: int


def control_requests(
    plan: ControllerBrokerRequestBatch, context: ControllerContext, sender: Sender
) -> dict[int, list[ControlRequest]]:
    """By broker, what to send to it, in order."""
    return _Assembly(context, sender).assemble(plan)


class _Assembly:
    def __init__(self, context: ControllerContext, sender: Sender) -> None:
        self._context = context
        self._sender = sender
        self._brokers = [_broker(context, broker_id) for broker_id in context.brokers]

    def assemble(self, plan: ControllerBrokerRequestBatch) -> dict[int, list[ControlRequest]]:
        changed = self._metadata(plan.metadata_of)
        complete = self._metadata(self._context.leadership) if plan.newcomers else []
        requests: dict[int, list[ControlRequest]] = {}
        for broker_id in self._context.brokers:
            made: list[ControlRequest] = []
            if broker_id in plan.newcomers:
                made.append(self._update_metadata(broker_id, complete))
            elif plan.brokers_changed:
                made.append(self._update_metadata(broker_id, []))
            hosted = self._led(plan.leader_and_isr.get(broker_id, {}))
            if hosted:
                made.append(self._leader_and_isr(broker_id, hosted))
            if changed:
                made.append(self._update_metadata(broker_id, changed))
            if broker_id in plan.stop_replica:
                made.append(self._stop_replica(broker_id, plan.stop_replica[broker_id]))
            if made:
                requests[broker_id] = made
        return requests

    def _led(self, partitions: Mapping[TopicPartition, bool]) -> dict[TopicPartition, bool]:
        """Without those whose topic went in the same decision."""
        return {tp: is_new for tp, is_new in partitions.items() if tp in self._context.leadership}

    def _metadata(self, partitions: Iterable[TopicPartition]) -> list[UpdateMetadataTopicState]:
        context = self._context
        led = [tp for tp in partitions if tp in context.leadership]
        return [
            UpdateMetadataTopicState(
                topic_name=topic,
                topic_id=context.topic_id(topic),
                partition_states=[self._partition_metadata(tp) for tp in of_topic],
            )
            for topic, of_topic in _by_topic(led)
        ]

    def _partition_metadata(self, partition: TopicPartition) -> UpdateMetadataPartitionState:
        context = self._context
        state = context.leadership[partition]
        if context.is_to_be_deleted(partition.topic):
            state = LeaderAndIsr(
                LEADER_DURING_DELETE, 0, state.isr, controller_epoch=state.controller_epoch
            )
        replicas = context.replicas_of(partition)
        return UpdateMetadataPartitionState(
            partition_index=partition.partition,
            controller_epoch=state.controller_epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            zk_version=state.partition_epoch,
            replicas=list(replicas),
            offline_replicas=[r for r in replicas if not context.is_online(r, partition)],
        )

    def _update_metadata(
        self, broker_id: int, topic_states: list[UpdateMetadataTopicState]
    ) -> ControlRequest:
        request = UpdateMetadataRequest(
            controller_id=self._sender.controller_id,
            controller_epoch=self._context.epoch,
            broker_epoch=self._context.brokers[broker_id].epoch,
            topic_states=topic_states,
            live_brokers=self._brokers,
        )
        return ControlRequest(request, UPDATE_METADATA_VERSION)

    def _leader_and_isr(
        self, broker_id: int, partitions: Mapping[TopicPartition, bool]
    ) -> ControlRequest:
        context = self._context
        request = LeaderAndIsrRequest(
            controller_id=self._sender.controller_id,
            controller_epoch=context.epoch,
            broker_epoch=context.brokers[broker_id].epoch,
            topic_states=[
                LeaderAndIsrTopicState(
                    topic_name=topic,
                    topic_id=context.topic_id(topic),
                    partition_states=[
                        self._partition_to_host(tp, is_new=partitions[tp]) for tp in of_topic
                    ],
                )
                for topic, of_topic in _by_topic(partitions)
            ],
            live_leaders=self._live_leaders(partitions),
        )
        return ControlRequest(request, LEADER_AND_ISR_VERSION)

    def _partition_to_host(
        self, partition: TopicPartition, *, is_new: bool
    ) -> LeaderAndIsrPartitionState:
        state = self._context.leadership[partition]
        assignment = self._context.assignments[partition]
        return LeaderAndIsrPartitionState(
            partition_index=partition.partition,
            controller_epoch=state.controller_epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            partition_epoch=state.partition_epoch,
            replicas=list(assignment.replicas),
            adding_replicas=list(assignment.adding),
            removing_replicas=list(assignment.removing),
            is_new=is_new,
            leader_recovery_state=state.recovery,
        )

    def _live_leaders(self, partitions: Iterable[TopicPartition]) -> list[LeaderAndIsrLiveLeader]:
        context = self._context
        leaders = {context.leadership[partition].leader for partition in partitions}
        made = []
        for leader in sorted(leaders & context.brokers.keys()):
            endpoint = context.brokers[leader].endpoint(self._sender.listener_name)
            made.append(
                LeaderAndIsrLiveLeader(
                    broker_id=leader, host_name=endpoint.host, port=endpoint.port
                )
            )
        return made

    def _stop_replica(
        self, broker_id: int, partitions: Mapping[TopicPartition, bool]
    ) -> ControlRequest:
        context = self._context
        request = StopReplicaRequest(
            controller_id=self._sender.controller_id,
            controller_epoch=context.epoch,
            broker_epoch=context.brokers[broker_id].epoch,
            topic_states=[
                StopReplicaTopicState(
                    topic_name=topic,
                    partition_states=[
                        StopReplicaPartitionState(
                            partition_index=tp.partition,
                            leader_epoch=context.leader_epoch_to_stop(tp),
                            delete_partition=partitions[tp],
                        )
                        for tp in of_topic
                    ],
                )
                for topic, of_topic in _by_topic(partitions)
            ],
        )
        return ControlRequest(request, STOP_REPLICA_VERSION)


def _broker(context: ControllerContext, broker_id: int) -> UpdateMetadataBroker:
    broker = context.brokers[broker_id]
    return UpdateMetadataBroker(
        id=broker_id,
        endpoints=[
            UpdateMetadataEndpoint(
                port=endpoint.port,
                host=endpoint.host,
                listener=endpoint.listener_name,
                security_protocol=SECURITY_PROTOCOLS.get(endpoint.security_protocol, 0),
            )
            for endpoint in broker.endpoints
        ],
        rack=broker.rack,
    )


def _by_topic(
    partitions: Iterable[TopicPartition],
) -> Iterator[tuple[str, list[TopicPartition]]]:
    by_topic: dict[str, list[TopicPartition]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(partition)
    yield from by_topic.items()
