"""Elections that somebody asks for, and those that bring leadership back to where it belongs.

The preferred leader of a partition is the first of its replicas. By itself the controller moves
leadership there when a broker leads too few of the partitions that prefer it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from tidelog.controller.cluster import partition_machine
from tidelog.controller.cluster.context import ClusterContext
from tidelog.controller.cluster.draft import Draft
from tidelog.controller.cluster.leader_election import ElectionStrategy
from tidelog.errors import ErrorCode, KafkaError
from tidelog.types import NO_LEADER, TopicPartition

PREFERRED_ELECTION: Final = 0
UNCLEAN_ELECTION: Final = 1


def elect_preferred(draft: Draft, partitions: Iterable[TopicPartition]) -> None:
    """What /admin/preferred_replica_election asks for; what needs no election is passed over."""
    wanted = [tp for tp in partitions if _refusal(draft.state, tp, PREFERRED_ELECTION) is None]
    partition_machine.bring_online(draft, wanted, ElectionStrategy.PREFERRED)


def elect_leaders(
    draft: Draft, partitions: Collection[TopicPartition], election_type: int
) -> dict[TopicPartition, KafkaError | None]:
    """What ElectLeaders asks for, with what went wrong. An unclean election always may be."""
    results = {tp: _refusal(draft.state, tp, election_type) for tp in partitions}
    electable = [partition for partition, refusal in results.items() if refusal is None]
    if election_type == PREFERRED_ELECTION:
        strategy = ElectionStrategy.PREFERRED
        failure = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    else:
        strategy = ElectionStrategy.OFFLINE_UNCLEAN_ALLOWED
        failure = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    elected = partition_machine.bring_online(draft, electable, strategy)
    for partition in electable:
        if partition not in elected:
            results[partition] = KafkaError(
                failure, f"Failed to elect leader for partition {partition}."
            )
    return results


def _refusal(
    state: ClusterContext, partition: TopicPartition, election_type: int
) -> KafkaError | None:
    if partition not in state.assignments:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    if state.is_to_be_deleted(partition.topic):
        return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted")
    current = state.leadership.get(partition)
    leader = NO_LEADER if current is None else current.leader
    if election_type == PREFERRED_ELECTION:
        needed = leader != state.replicas_of(partition)[0]
    else:
        needed = leader == NO_LEADER or not state.is_live(leader)
    return None if needed else KafkaError(ErrorCode.ELECTION_NOT_NEEDED)


def rebalance(draft: Draft, imbalance_percentage: int) -> None:
    """Preferred elections for brokers that lead too few of the partitions that prefer them."""
    preferring: dict[int, list[TopicPartition]] = {}
    for partition in draft.state.leadership:
        if not draft.state.is_to_be_deleted(partition.topic):
            preferred = draft.state.replicas_of(partition)[0]
            preferring.setdefault(preferred, []).append(partition)
    for broker_id, partitions in preferring.items():
        astray = [tp for tp in partitions if draft.state.leadership[tp].leader != broker_id]
        if len(astray) * 100 > imbalance_percentage * len(partitions):
            ready = [tp for tp in astray if _may_lead(draft.state, broker_id, tp)]
            partition_machine.bring_online(draft, ready, ElectionStrategy.PREFERRED)


def _may_lead(state: ClusterContext, broker_id: int, partition: TopicPartition) -> bool:
    return state.is_online(broker_id, partition) and broker_id in state.leadership[partition].isr
