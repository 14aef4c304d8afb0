"""The states of a partition in the eyes of the controller, and the moves between them, in a draft.

NON_EXISTENT   never made, or deleted
NEW            has replicas, but neither leader nor in-sync set yet
ONLINE         has a leader
OFFLINE        had a leader, which is gone

    NON_EXISTENT -> NEW          nothing else
    NEW -> ONLINE                the first live replica leads, all live ones are in sync
    ONLINE, OFFLINE -> ONLINE    an election
    any -> OFFLINE               nothing else: the leader is gone already
    OFFLINE -> NON_EXISTENT      nothing else

A move that the table does not allow is logged and not made, as in Kafka.

Elections of partitions that are online bring leadership back to where it belongs. The preferred
leader of a partition is the first of its replicas. The controller moves leadership there when
somebody asks for it, and by itself when a broker leads too few of the partitions that prefer it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from tidelog.controller.cluster.election import Candidates, Election, ElectionStrategy, elect
from tidelog.controller.cluster.leader_and_isr import LeaderAndIsr
from tidelog.errors import ErrorCode, KafkaError
from tidelog.types import NO_LEADER, TopicPartition

if TYPE_CHECKING:
    from tidelog.controller.cluster.controller_context import ControllerContext
    from tidelog.controller.cluster.decision_draft import DecisionDraft

logger = logging.getLogger(__name__)


PREFERRED_ELECTION: Final = 0
UNCLEAN_ELECTION: Final = 1

# Why there was an election: words for the log.
LEADER_GONE: Final = "leader-gone"
REPLICA_BACK: Final = "replica-back"  # nobody led, and now somebody may
UNCLEAN: Final = "unclean"  # nobody in sync was left
REASONS: Final = {
    ElectionStrategy.REASSIGNED: "reassignment",
    ElectionStrategy.PREFERRED: "preferred",
    ElectionStrategy.CONTROLLED_SHUTDOWN: "controlled-shutdown",
}


class PartitionState(Enum):
    NON_EXISTENT = auto()
    NEW = auto()
    ONLINE = auto()
    OFFLINE = auto()


ALLOWED_FROM: Final[Mapping[PartitionState, frozenset[PartitionState]]] = {
    PartitionState.NEW: frozenset({PartitionState.NON_EXISTENT}),
    PartitionState.ONLINE: frozenset(
        {PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}
    ),
    PartitionState.OFFLINE: frozenset(
        {PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}
    ),
    PartitionState.NON_EXISTENT: frozenset({PartitionState.OFFLINE}),
}


def start(draft: DecisionDraft) -> None:
    """The states of all partitions, told from what the store says, and leaders where they lack."""
    state = draft.state
    for partition in state.assignments:
        led = state.leadership.get(partition)
        if led is None:
            state.partition_states[partition] = PartitionState.NEW
        elif state.is_online(led.leader, partition):
            state.partition_states[partition] = PartitionState.ONLINE
        else:
            state.partition_states[partition] = PartitionState.OFFLINE
    elect_where_missing(draft)


def mark(
    draft: DecisionDraft, partitions: Iterable[TopicPartition], target: PartitionState
) -> None:
    """A move that is nothing but a move: to NEW, OFFLINE or NON_EXISTENT."""
    for partition in _allowed(draft, partitions, target):
        draft.state.partition_states[partition] = target


def elect_where_missing(draft: DecisionDraft, topic: str | None = None) -> set[TopicPartition]:
    """Tries to give a leader to every partition that is NEW or OFFLINE; those that got one."""
    waiting = draft.state.partitions_in((PartitionState.NEW, PartitionState.OFFLINE))
    wanted = [
        partition
        for partition in waiting
        if topic in (None, partition.topic) and not draft.state.is_to_be_deleted(partition.topic)
    ]
    return bring_online(draft, wanted, ElectionStrategy.OFFLINE)


def bring_online(
    draft: DecisionDraft, partitions: Iterable[TopicPartition], strategy: ElectionStrategy
) -> set[TopicPartition]:
    """Elects leaders; the partitions for which there was somebody to elect."""
    elected, left = set(), []
    for partition in _allowed(draft, partitions, PartitionState.ONLINE):
        if draft.state.partition_state(partition) is PartitionState.NEW:
            done = _first_leader(draft, partition)
        else:
            done = _next_leader(draft, partition, strategy)
        if done:
            draft.state.partition_states[partition] = PartitionState.ONLINE
            elected.add(partition)
        else:
            left.append(partition)
    if left:
        logger.warning(
            "no leader can be elected",
            extra={"partitions": ",".join(map(str, left[:10])), "count": len(left)},
        )
    return elected


def _first_leader(draft: DecisionDraft, partition: TopicPartition) -> bool:
    live = tuple(draft.state.online_replicas(partition))
    if not live:
        return False
    draft.lead(partition, LeaderAndIsr(live[0], 0, live))
    draft.requests.tell_replicas(live, partition, is_new=True)
    return True


def _next_leader(
    draft: DecisionDraft, partition: TopicPartition, strategy: ElectionStrategy
) -> bool:
    # The same decision may have taken the old leader out already.
    before = draft.stored_leadership(partition) or draft.state.leadership[partition]
    elected = elect(strategy, candidates(draft, partition))
    if elected is None:
        draft.elections.append(Election(partition, before, _reason(strategy, before), None))
        return False
    if elected.unclean:
        logger.warning(
            "unclean leader election",
            extra={"partition": str(partition), "leader": elected.state.leader},
        )
        draft.set_leadership(partition, elected.state._replace(elr=(), last_known_elr=()))
    else:
        draft.lead(partition, elected.state)
    reason = UNCLEAN if elected.unclean else _reason(strategy, before)
    draft.elections.append(Election(partition, before, reason, elected.state))
    draft.requests.tell_replicas(elected.recipients, partition)
    return True


def _reason(strategy: ElectionStrategy, before: LeaderAndIsr) -> str:
    if strategy in REASONS:
        return REASONS[strategy]
    return REPLICA_BACK if before.leader == NO_LEADER else LEADER_GONE


def candidates(draft: DecisionDraft, partition: TopicPartition) -> Candidates:
    state = draft.state
    assignment = state.assignments[partition]
    return Candidates(
        assignment,
        state.leadership[partition],
        frozenset(state.online_replicas(partition)),
        state.shutting_down.intersection(assignment.replicas),
        state.settings_of(partition.topic).unclean_leader_election,
    )


def _allowed(
    draft: DecisionDraft, partitions: Iterable[TopicPartition], target: PartitionState
) -> list[TopicPartition]:
    allowed = []
    for partition in partitions:
        current = draft.state.partition_state(partition)
        if current in ALLOWED_FROM[target]:
            allowed.append(partition)
        else:
            logger.error(
                "a partition cannot change its state like this",
                extra={"partition": str(partition), "from": current.name, "to": target.name},
            )
    return allowed


def elect_preferred(draft: DecisionDraft, partitions: Iterable[TopicPartition]) -> None:
    """What /admin/preferred_replica_election asks for; what needs no election is passed over."""
    wanted = [tp for tp in partitions if _refusal(draft.state, tp, PREFERRED_ELECTION) is None]
    bring_online(draft, wanted, ElectionStrategy.PREFERRED)


def elect_leaders(
    draft: DecisionDraft, partitions: Collection[TopicPartition], election_type: int
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
    elected = bring_online(draft, electable, strategy)
    for partition in electable:
        if partition not in elected:
            results[partition] = KafkaError(
                failure, f"Failed to elect leader for partition {partition}."
            )
    return results


def _refusal(
    state: ControllerContext, partition: TopicPartition, election_type: int
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


def elect_preferred_where_imbalanced(draft: DecisionDraft, imbalance_percentage: int) -> None:
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
            bring_online(draft, ready, ElectionStrategy.PREFERRED)


def _may_lead(state: ControllerContext, broker_id: int, partition: TopicPartition) -> bool:
    return state.is_online(broker_id, partition) and broker_id in state.leadership[partition].isr
