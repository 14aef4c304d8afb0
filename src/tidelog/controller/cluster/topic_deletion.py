"""Deleting topics from all their brokers: decisions.

A topic is deleted once a node under /admin/delete_topics asks for it. All brokers stop serving it,
its replicas are stopped and then deleted. When the last broker has confirmed, the topic's nodes go.
Deletion halts while a replica's broker is not there, or while a partition is being reassigned, and
resumes when that is over; a broker that fails to delete is asked again when it comes back.

`DecisionDraft.deleted_topics` names the topics that are done: their nodes and what is known of them
are to be removed after the decision has been carried out.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from tidelog.controller.cluster import partition_state_machine, replica_state_machine
from tidelog.controller.cluster.controller_context import ControllerContext, Replica
from tidelog.controller.cluster.decision_draft import DecisionDraft
from tidelog.controller.cluster.partition_state_machine import PartitionState
from tidelog.controller.cluster.replica_state_machine import ReplicaState

logger = logging.getLogger(__name__)


def recall(draft: DecisionDraft, topics: Collection[str]) -> None:
    """A new controller learns which topics are on their way out, and which of them have to wait."""
    state = draft.state
    state.topics_to_delete.update(name for name in topics if name in state.topics)
    reassigned = {partition.topic for partition in state.reassigning}
    for name in state.topics_to_delete:
        dead = any(not state.is_online(r.broker_id, r.partition) for r in _replicas(state, name))
        if dead or name in reassigned:
            state.deletion_ineligible.add(name)


def enqueue(draft: DecisionDraft, topics: Collection[str]) -> None:
    state = draft.state
    state.topics_to_delete.update(topics)
    halt(draft, {partition.topic for partition in state.reassigning})
    resume(draft)


def halt(draft: DecisionDraft, topics: Collection[str]) -> None:
    """Of the topics to delete, these have to wait."""
    draft.state.deletion_ineligible.update(draft.state.topics_to_delete.intersection(topics))


def resume_for(draft: DecisionDraft, topics: Collection[str]) -> None:
    """Something that held up these topics is over."""
    waiting = draft.state.topics_to_delete.intersection(topics)
    if waiting:
        draft.state.deletion_ineligible -= waiting
        resume(draft)


def replicas_deleted(draft: DecisionDraft, replicas: Iterable[Replica]) -> None:
    """Among them may be some that a reassignment had deleted: those do not count."""
    asked = [
        replica
        for replica in _under_deletion(draft, replicas)
        if draft.state.replica_state(replica) is ReplicaState.DELETION_STARTED
    ]
    replica_state_machine.move(draft, asked, ReplicaState.DELETION_SUCCESSFUL)
    resume(draft)


def replicas_failed(draft: DecisionDraft, replicas: Iterable[Replica]) -> None:
    """They were not deleted, or their broker is gone before it could."""
    failed = _under_deletion(draft, replicas)
    if not failed:
        return
    halting = [
        replica
        for replica in failed
        if draft.state.replica_state(replica)
        in (ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED)
    ]
    replica_state_machine.move(draft, halting, ReplicaState.DELETION_INELIGIBLE)
    halt(draft, {replica.partition.topic for replica in failed})
    resume(draft)


def resume(draft: DecisionDraft) -> None:
    """Goes on with every topic that can go on."""
    state = draft.state
    if not state.deletion_enabled:
        return
    ready = []
    for name in sorted(state.topics_to_delete - draft.deleted_topics):
        states = {state.replica_state(replica) for replica in _replicas(state, name)}
        if states <= {ReplicaState.DELETION_SUCCESSFUL}:
            draft.deleted_topics.add(name)
        elif ReplicaState.DELETION_STARTED not in states and name not in state.deletion_ineligible:
            ready.append(name)
    if ready:
        _delete(draft, ready)


def _delete(draft: DecisionDraft, topics: Collection[str]) -> None:
    state = draft.state
    logger.info("deleting topics", extra={"topics": list(topics)})
    for name in topics:
        partitions = state.partitions_of(name)
        if name not in state.deletion_started:
            partition_state_machine.mark(draft, partitions, PartitionState.OFFLINE)
            partition_state_machine.mark(draft, partitions, PartitionState.NON_EXISTENT)
            state.deletion_started.add(name)
        draft.requests.tell_everyone(partitions)
        _delete_replicas(draft, name)


def _delete_replicas(draft: DecisionDraft, name: str) -> None:
    state = draft.state
    left = [
        replica
        for replica in _replicas(state, name)
        if state.replica_state(replica) is not ReplicaState.DELETION_SUCCESSFUL
    ]
    dead = [r for r in left if not state.is_online(r.broker_id, r.partition)]
    alive = [r for r in left if state.is_online(r.broker_id, r.partition)]
    # By way of OFFLINE, which every replica that is not being deleted may become.
    replica_state_machine.move(draft, left, ReplicaState.OFFLINE)
    replica_state_machine.move(draft, dead, ReplicaState.DELETION_INELIGIBLE)
    replica_state_machine.move(draft, alive, ReplicaState.DELETION_STARTED)
    if dead:
        logger.info("deletion waits for brokers", extra={"topic": name})
        halt(draft, [name])


def _replicas(state: ControllerContext, name: str) -> list[Replica]:
    return state.replicas_of_topic(name)


def _under_deletion(draft: DecisionDraft, replicas: Iterable[Replica]) -> list[Replica]:
    return [r for r in replicas if draft.state.is_to_be_deleted(r.partition.topic)]
