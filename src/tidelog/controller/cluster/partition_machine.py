"""Moves partitions between the states of `partition_state.py`, in a draft.

    NON_EXISTENT -> NEW          nothing else
    NEW -> ONLINE                the first live replica leads, all live ones are in sync
    ONLINE, OFFLINE -> ONLINE    an election
    any -> OFFLINE               nothing else: the leader is gone already
    OFFLINE -> NON_EXISTENT      nothing else

A move that the table does not allow is logged and not made, as in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from tidelog.controller.cluster.draft import Draft
from tidelog.controller.cluster.leader_and_isr import LeaderAndIsr
from tidelog.controller.cluster.leader_election import Candidates, ElectionStrategy, elect
from tidelog.controller.cluster.partition_state import ALLOWED_FROM, PartitionState
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)


def start(draft: Draft) -> None:
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


def mark(draft: Draft, partitions: Iterable[TopicPartition], target: PartitionState) -> None:
    """A move that is nothing but a move: to NEW, OFFLINE or NON_EXISTENT."""
    for partition in _allowed(draft, partitions, target):
        draft.state.partition_states[partition] = target


def elect_where_missing(draft: Draft, topic: str | None = None) -> set[TopicPartition]:
    """Tries to give a leader to every partition that is NEW or OFFLINE; those that got one."""
    waiting = draft.state.partitions_in((PartitionState.NEW, PartitionState.OFFLINE))
    wanted = [
        partition
        for partition in waiting
        if topic in (None, partition.topic) and not draft.state.is_to_be_deleted(partition.topic)
    ]
    return bring_online(draft, wanted, ElectionStrategy.OFFLINE)


def bring_online(
    draft: Draft, partitions: Iterable[TopicPartition], strategy: ElectionStrategy
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


def _first_leader(draft: Draft, partition: TopicPartition) -> bool:
    live = tuple(draft.state.online_replicas(partition))
    if not live:
        return False
    draft.lead(partition, LeaderAndIsr(live[0], 0, live))
    draft.requests.tell_replicas(live, partition, is_new=True)
    return True


def _next_leader(draft: Draft, partition: TopicPartition, strategy: ElectionStrategy) -> bool:
    elected = elect(strategy, candidates(draft, partition))
    if elected is None:
        return False
    if elected.unclean:
        logger.warning(
            "unclean leader election",
            extra={"partition": str(partition), "leader": elected.state.leader},
        )
        draft.set_leadership(partition, elected.state._replace(elr=(), last_known_elr=()))
    else:
        draft.lead(partition, elected.state)
    draft.requests.tell_replicas(elected.recipients, partition)
    return True


def candidates(draft: Draft, partition: TopicPartition) -> Candidates:
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
    draft: Draft, partitions: Iterable[TopicPartition], target: PartitionState
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
