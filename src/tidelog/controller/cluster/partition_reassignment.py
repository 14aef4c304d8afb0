"""Giving partitions other replicas: decisions.

1. The wanted replicas are added to the assignment (see `ReplicaAssignment`), in the store and
   at the brokers; the new ones start to copy.
2. Once all wanted replicas are in sync, one of them leads, the others are stopped and deleted, and
   the assignment is what was wanted. All of this is one write, so it is never seen half done.

A later reassignment supersedes one under way; a cancelled one is a reassignment to the replicas
before. Both drop replicas that were being added at once, even one that leads: another leader is
elected then. Neither may drop all replicas in sync, because the records would go with them. How
much bandwidth the copying takes is up to the throttles of leaders and followers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tidelog.controller.cluster import (
    partition_state_machine,
    replica_state_machine,
    topic_deletion,
)
from tidelog.controller.cluster.controller_context import (
    ControllerContext,
    Replica,
    ReplicaAssignment,
)
from tidelog.controller.cluster.decision_draft import DecisionDraft
from tidelog.controller.cluster.election import ElectionStrategy
from tidelog.controller.cluster.partition_state_machine import PartitionState
from tidelog.controller.cluster.replica_state_machine import ReplicaState
from tidelog.errors import ErrorCode, KafkaError
from tidelog.types import NO_LEADER, TopicPartition


def start_all(
    draft: DecisionDraft, targets: Mapping[TopicPartition, Sequence[int]]
) -> set[TopicPartition]:
    """Those of /admin/reassign_partitions; the ones that are new and could be started."""
    started = set()
    for partition, target in targets.items():
        if not target or not _may_be_reassigned(draft.state, partition):
            continue
        current = draft.state.assignments[partition]
        wanted = current.reassigned_to(target)
        if current.is_being_reassigned and current.target == tuple(target):
            continue
        if _keeps_replica_in_sync(draft.state, partition, wanted):
            reassign(draft, partition, wanted)
            started.add(partition)
    return started


def alter(
    draft: DecisionDraft,
    partition: TopicPartition,
    target: Sequence[int] | None,
    *,
    same_factor: bool,
) -> None:
    """What AlterPartitionReassignments asks for; no target cancels. Raises KafkaError."""
    state = draft.state
    current = state.assignments.get(partition)
    if target is not None:
        must_be_possible(state, current or ReplicaAssignment(()), target, same_factor=same_factor)
    if current is None or not _may_be_reassigned(state, partition):
        if target is None:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    if target is None:
        if not current.is_being_reassigned:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        target = current.origin
    wanted = current.reassigned_to(target)
    if not _keeps_replica_in_sync(state, partition, wanted):
        raise _impossible(
            f"Only replicas that the reassignment of {partition} is adding are in sync, and it "
            "would drop them: acknowledged records would be lost."
        )
    reassign(draft, partition, wanted)


def must_be_possible(
    state: ControllerContext,
    current: ReplicaAssignment,
    target: Sequence[int],
    *,
    same_factor: bool,
) -> None:
    if not target:
        raise _impossible("Empty replica list specified in partition reassignment.")
    if len(set(target)) < len(target):
        raise _impossible(
            f"Duplicate replica ids in partition reassignment replica list: {list(target)}"
        )
    if min(target) < 0:
        raise _impossible(f"Invalid broker id in replica list: {list(target)}")
    adding = current.reassigned_to(target).adding
    if any(not state.is_live(broker_id) for broker_id in adding):
        raise _impossible(
            "Replica assignment has brokers that are not alive. "
            f"Replica list: {list(adding)}, live broker list: {sorted(state.live_brokers())}"
        )
    if same_factor and current.replicas and len(target) != len(current.origin):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is {len(current.origin)} and may not be changed.",
        )


def _impossible(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _may_be_reassigned(state: ControllerContext, partition: TopicPartition) -> bool:
    return (
        partition in state.assignments
        and partition in state.leadership
        and not state.is_to_be_deleted(partition.topic)
    )


def _keeps_replica_in_sync(
    state: ControllerContext, partition: TopicPartition, wanted: ReplicaAssignment
) -> bool:
    """As KRaft has it; Kafka over ZooKeeper deletes the last replica in sync."""
    return not set(state.leadership[partition].isr).isdisjoint(wanted.replicas)


def resume(draft: DecisionDraft, partitions: Collection[TopicPartition]) -> None:
    for partition in sorted(partitions):
        if partition in draft.state.leadership:
            reassign(draft, partition, draft.state.assignments[partition])


def complete_where_possible(draft: DecisionDraft, partitions: Collection[TopicPartition]) -> None:
    """In-sync sets have changed: reassignments that waited for it are done."""
    for partition in sorted(draft.state.reassigning.intersection(partitions)):
        assignment = draft.state.assignments[partition]
        if _is_complete(draft, partition, assignment):
            reassign(draft, partition, assignment)


def reassign(draft: DecisionDraft, partition: TopicPartition, wanted: ReplicaAssignment) -> None:
    """Starts a reassignment or takes it further."""
    topic_deletion.halt(draft, [partition.topic])
    _update_assignment(draft, partition, wanted)
    if _is_complete(draft, partition, wanted):
        _complete(draft, partition, wanted)
    else:
        _wait_for_isr(draft, partition, wanted)


def _update_assignment(
    draft: DecisionDraft, partition: TopicPartition, wanted: ReplicaAssignment
) -> None:
    state = draft.state
    current = state.assignments[partition]
    if current != wanted:
        draft.assign(partition, wanted)
        unneeded = [r for r in current.replicas if r not in wanted.replicas]
        _remove(draft, partition, unneeded)
    state.reassigning.add(partition)


def _is_complete(
    draft: DecisionDraft, partition: TopicPartition, assignment: ReplicaAssignment
) -> bool:
    if not assignment.is_being_reassigned:
        return True
    in_sync = draft.state.leadership[partition].isr
    target = assignment.target
    return set(target) <= set(in_sync) and any(
        draft.state.is_online(replica, partition) for replica in target
    )


def _wait_for_isr(
    draft: DecisionDraft, partition: TopicPartition, wanted: ReplicaAssignment
) -> None:
    """The leader learns of its new followers with a new epoch, and those start to copy."""
    current = draft.state.leadership[partition]
    was_online = draft.state.partition_state(partition) is PartitionState.ONLINE
    if current.leader == NO_LEADER and was_online:  # a replica led that is not wanted any more
        partition_state_machine.mark(draft, [partition], PartitionState.OFFLINE)
        partition_state_machine.bring_online(draft, [partition], ElectionStrategy.OFFLINE)
    else:
        draft.lead(partition, current.next_epoch())
    draft.requests.tell_replicas(wanted.origin, partition)
    draft.requests.tell_replicas(wanted.adding, partition, is_new=True)
    new = [Replica(partition, broker_id) for broker_id in wanted.adding]
    unknown = [r for r in new if draft.state.replica_state(r) is ReplicaState.NON_EXISTENT]
    replica_state_machine.move(draft, unknown, ReplicaState.NEW)


def _complete(draft: DecisionDraft, partition: TopicPartition, wanted: ReplicaAssignment) -> None:
    state = draft.state
    added = [Replica(partition, broker_id) for broker_id in wanted.adding]
    replica_state_machine.move(
        draft, [r for r in added if r in state.replica_states], ReplicaState.ONLINE
    )
    draft.assign(partition, ReplicaAssignment(wanted.target))
    _move_leader(draft, partition, wanted.target)
    _remove(draft, partition, wanted.removing)
    state.reassigning.discard(partition)
    draft.requests.tell_everyone([partition])
    topic_deletion.resume_for(draft, [partition.topic])


def _move_leader(draft: DecisionDraft, partition: TopicPartition, target: Sequence[int]) -> None:
    current = draft.state.leadership[partition]
    if current.leader in target and draft.state.is_online(current.leader, partition):
        draft.lead(partition, current.next_epoch())
        draft.requests.tell_replicas(target, partition)
    else:
        partition_state_machine.bring_online(draft, [partition], ElectionStrategy.REASSIGNED)


def _remove(draft: DecisionDraft, partition: TopicPartition, broker_ids: Sequence[int]) -> None:
    """Stops and deletes replicas; whether they confirm is not waited for, as in Kafka."""
    replicas = [Replica(partition, broker_id) for broker_id in broker_ids]
    known = [r for r in replicas if r in draft.state.replica_states]
    for target in (
        ReplicaState.OFFLINE,
        ReplicaState.DELETION_STARTED,
        ReplicaState.DELETION_SUCCESSFUL,
    ):
        replica_state_machine.move(draft, known, target)
    replica_state_machine.forget(draft, known)
