"""In-sync sets that leaders ask to change by AlterPartition: decisions.

Checks of a request, in order: the broker is registered (77), in the epoch that it claims (77).
Checks of a partition, in order
    the topic id is known, from v2 on                                    UNKNOWN_TOPIC_ID
    it has a leader                                                      UNKNOWN_TOPIC_OR_PARTITION
    neither epoch is ahead of what is known here                         NOT_CONTROLLER
    the leader epoch is the current one                                  FENCED_LEADER_EPOCH
    (already as wanted: answered as it is, so that a repeated request is harmless)
    the partition epoch is the current one                               INVALID_UPDATE_VERSION
    the broker leads it                                                  INVALID_REQUEST
    while the leader recovers it alone is in sync, and it does not fall
    back into recovering                                                 INVALID_REQUEST
    the leader itself is in the set, which has only replicas             INVALID_REQUEST
    all members are live, and in the epochs given (KIP-841, KIP-903)     INELIGIBLE_REPLICA,
                                                                         before v2
                                                                         OPERATION_NOT_ATTEMPTED
Kafka over ZooKeeper does not look at who leads, at the members or at their epochs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from tidelog.controller.cluster.controller_context import ControllerContext
from tidelog.controller.cluster.decision_draft import DecisionDraft
from tidelog.controller.cluster.leader_and_isr import RECOVERED, RECOVERING, LeaderAndIsr
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from tidelog.types import TopicPartition

FIRST_VERSION_WITH_TOPIC_IDS: Final = 2
FIRST_VERSION_WITH_MEMBER_EPOCHS: Final = 3
UNKNOWN_BROKER_EPOCH: Final = -1


class _Wish(NamedTuple):
    """The in-sync set that a leader asks for."""

    broker_id: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    member_epochs: tuple[int, ...]  # of the members, as far as the leader knows them
    recovery: int


def alter_partitions(
    draft: DecisionDraft, request: AlterPartitionRequest, version: int
) -> AlterPartitionResponse:
    broker = draft.state.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    topics = []
    for topic in request.topics:
        name = _topic_name(draft.state, topic, version)
        topics.append(
            AlterPartitionResponseTopicData(
                topic_name=topic.topic_name,
                topic_id=topic.topic_id,
                partitions=[
                    _answer(draft, name, _wish(request.broker_id, row, version), row, version)
                    for row in topic.partitions
                ],
            )
        )
    return AlterPartitionResponse(topics=topics)


def partitions_named(
    context: ControllerContext, request: AlterPartitionRequest, version: int
) -> Iterator[TopicPartition]:
    for topic in request.topics:
        name = _topic_name(context, topic, version)
        if name is not None:
            yield from (TopicPartition(name, row.partition_index) for row in topic.partitions)


def _topic_name(
    context: ControllerContext, topic: AlterPartitionRequestTopicData, version: int
) -> str | None:
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        return context.topic_names.get(topic.topic_id)
    return topic.topic_name


def _wish(broker_id: int, row: AlterPartitionRequestPartitionData, version: int) -> _Wish:
    if version >= FIRST_VERSION_WITH_MEMBER_EPOCHS:
        isr = tuple(member.broker_id for member in row.new_isr_with_epochs)
        epochs = tuple(member.broker_epoch for member in row.new_isr_with_epochs)
    else:
        isr, epochs = tuple(row.new_isr), (UNKNOWN_BROKER_EPOCH,) * len(row.new_isr)
    return _Wish(
        broker_id, row.leader_epoch, row.partition_epoch, isr, epochs, row.leader_recovery_state
    )


def _answer(
    draft: DecisionDraft,
    topic: str | None,
    wish: _Wish,
    row: AlterPartitionRequestPartitionData,
    version: int,
) -> AlterPartitionResponsePartitionData:
    try:
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        state = _altered(draft, TopicPartition(topic, row.partition_index), wish, version)
    except KafkaError as error:
        return AlterPartitionResponsePartitionData(
            partition_index=row.partition_index, error_code=error.code
        )
    return AlterPartitionResponsePartitionData(
        partition_index=row.partition_index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        leader_recovery_state=state.recovery,
        partition_epoch=state.partition_epoch,
    )


def _altered(
    draft: DecisionDraft, partition: TopicPartition, wish: _Wish, version: int
) -> LeaderAndIsr:
    current = draft.state.leadership.get(partition)
    if current is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    # Whatever comes of it, brokers that are behind get another chance to hear of the partition.
    draft.requests.tell_everyone([partition])
    if wish.partition_epoch > current.partition_epoch or wish.leader_epoch > current.leader_epoch:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    if wish.leader_epoch < current.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    if (wish.broker_id, wish.isr, wish.recovery) == (current.leader, current.isr, current.recovery):
        return current
    if wish.partition_epoch < current.partition_epoch:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)
    _require_sensible(draft.state, partition, current, wish)
    if not _members_are_eligible(draft.state, wish):
        raise KafkaError(
            ErrorCode.INELIGIBLE_REPLICA
            if version >= FIRST_VERSION_WITH_TOPIC_IDS
            else ErrorCode.OPERATION_NOT_ATTEMPTED
        )
    return draft.lead(partition, current._replace(isr=wish.isr, recovery=wish.recovery))


def _require_sensible(
    state: ControllerContext, partition: TopicPartition, current: LeaderAndIsr, wish: _Wish
) -> None:
    recovering = wish.recovery == RECOVERING
    wrong = (
        wish.broker_id != current.leader
        or (recovering and len(wish.isr) > 1)
        or (recovering and current.recovery == RECOVERED)
        or wish.broker_id not in wish.isr
        or not set(wish.isr).issubset(state.replicas_of(partition))
    )
    if wrong:
        raise KafkaError(ErrorCode.INVALID_REQUEST)


def _members_are_eligible(state: ControllerContext, wish: _Wish) -> bool:
    return all(
        state.is_live(member) and epoch in (UNKNOWN_BROKER_EPOCH, state.brokers[member].epoch)
        for member, epoch in zip(wish.isr, wish.member_epochs, strict=True)
    )
