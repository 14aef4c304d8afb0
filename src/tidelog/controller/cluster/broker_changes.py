"""Brokers that come, go, come back, move, stop and lose log directories: decisions.

A broker that comes is told of everything; its replicas start, partitions that waited for it get a
leader, and what it held up (reassignments, deletions) goes on. A broker that goes leaves the
in-sync sets, and what it led gets another leader. A broker with a known id and a new epoch has
died and come back unseen: it goes first, then it comes. A broker that announces its stop has its
leaderships moved elsewhere first.

A broker that loses a log directory leaves a node under /log_dir_event_notification. It is then told
once more to host all its replicas, and answers KAFKA_STORAGE_ERROR for those it lost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from tidelog.controller.cluster import (
    partition_reassignment,
    partition_state_machine,
    replica_state_machine,
    topic_deletion,
)
from tidelog.controller.cluster.controller_context import (
    BrokerRegistration,
    ControllerContext,
    Replica,
)
from tidelog.controller.cluster.decision_draft import DecisionDraft
from tidelog.controller.cluster.election import ElectionStrategy, after_unclean_restart
from tidelog.controller.cluster.partition_state_machine import PartitionState
from tidelog.controller.cluster.replica_state_machine import ReplicaState
from tidelog.errors import ErrorCode, KafkaError
from tidelog.types import NO_BROKER_EPOCH, TopicPartition


class BrokerChanges(NamedTuple):
    gone: list[int]  # those that were known and are not the same any more
    come: dict[int, BrokerRegistration]


def compare(context: ControllerContext, now: Mapping[int, BrokerRegistration]) -> BrokerChanges:
    known = context.brokers
    return BrokerChanges(
        sorted(b for b in known if b not in now or now[b].epoch > known[b].epoch),
        {b: now[b] for b in sorted(now) if b not in known or now[b].epoch > known[b].epoch},
    )


def brokers_gone(draft: DecisionDraft, broker_ids: Collection[int]) -> None:
    state = draft.state
    for broker_id in broker_ids:
        del state.brokers[broker_id]
        state.offline_dirs.pop(broker_id, None)
        state.shutting_down.discard(broker_id)
    draft.requests.introduce_brokers()
    replicas_offline(draft, state.replicas_on(broker_ids))


def replicas_offline(draft: DecisionDraft, replicas: Collection[Replica]) -> None:
    """Of brokers that are gone, or of log directories that have failed."""
    state = draft.state
    leaderless = state.partitions_without_live_leader()
    partition_state_machine.mark(draft, leaderless, PartitionState.OFFLINE)
    partition_state_machine.elect_where_missing(draft)
    to_keep = [r for r in replicas if not state.is_to_be_deleted(r.partition.topic)]
    leaving = replica_state_machine.leaders_last(draft, to_keep)
    replica_state_machine.move(draft, leaving, ReplicaState.OFFLINE)
    to_delete = [r for r in replicas if state.is_to_be_deleted(r.partition.topic)]
    if to_delete:
        topic_deletion.replicas_failed(draft, to_delete)


def brokers_come(draft: DecisionDraft, brokers: Mapping[int, BrokerRegistration]) -> None:
    state = draft.state
    state.brokers.update(brokers)
    for broker_id in brokers:
        state.offline_dirs.pop(broker_id, None)
    draft.requests.introduce_brokers(newcomers=brokers.keys())
    replicas = [
        replica
        for replica in state.replicas_on(brokers.keys())
        if state.replica_state(replica) is not ReplicaState.DELETION_SUCCESSFUL
    ]
    for replica in replicas:
        weigh_restart(draft, replica)
    replica_state_machine.move(draft, replicas, ReplicaState.ONLINE)
    partition_state_machine.elect_where_missing(draft)
    partition_reassignment.resume(
        draft,
        [tp for tp in state.reassigning if brokers.keys() & set(state.assignments[tp].target)],
    )
    topic_deletion.resume_for(draft, {replica.partition.topic for replica in replicas})


def weigh_restart(draft: DecisionDraft, replica: Replica) -> None:
    """After an unclean end the replica may lack what was committed (KIP-966)."""
    partition, broker_id = replica
    current = draft.state.leadership.get(partition)
    if current is None or draft.state.brokers[broker_id].clean_shutdown:
        return
    replicas = draft.state.replicas_of(partition)
    changed = after_unclean_restart(current, broker_id, replicas)
    if changed is not None:
        draft.set_leadership(partition, changed)
        draft.requests.tell_replicas(replicas, partition)


def broker_moved(draft: DecisionDraft, broker_id: int, broker: BrokerRegistration) -> None:
    """The same broker in the same life with other endpoints."""
    draft.state.brokers[broker_id] = broker
    draft.requests.introduce_brokers()


def shut_down(draft: DecisionDraft, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
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
    partition_state_machine.bring_online(draft, led, ElectionStrategy.CONTROLLED_SHUTDOWN)
    replica_state_machine.move(
        draft, [Replica(partition, broker_id) for partition in followed], ReplicaState.OFFLINE
    )
    return state.partitions_led_by(broker_id)


def ask_again(draft: DecisionDraft, broker_ids: Collection[int]) -> None:
    replicas = draft.state.replicas_on(broker_ids)
    live = [r for r in replicas if r.broker_id in draft.state.brokers]
    replica_state_machine.move(
        draft,
        [r for r in live if not draft.state.is_to_be_deleted(r.partition.topic)],
        ReplicaState.ONLINE,
    )


def hosting_answered(
    draft: DecisionDraft, broker_id: int, errors: Mapping[TopicPartition, ErrorCode]
) -> None:
    """The broker has said of these partitions whether it can host them."""
    if broker_id not in draft.state.brokers:
        return
    before = draft.state.offline_dirs.get(broker_id, frozenset())
    lost = {tp for tp, code in errors.items() if code is ErrorCode.KAFKA_STORAGE_ERROR}
    fine = {tp for tp, code in errors.items() if code is ErrorCode.NONE}
    now = (before - fine) | lost
    if now == before:
        return
    draft.state.offline_dirs[broker_id] = now
    fresh = now - before
    if fresh:
        replicas_offline(draft, [Replica(tp, broker_id) for tp in sorted(fresh)])
