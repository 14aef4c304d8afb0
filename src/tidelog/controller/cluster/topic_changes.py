"""Topics and partitions that appear in the store, and settings that change: decisions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from tidelog.controller.cluster import partition_state_machine, replica_state_machine
from tidelog.controller.cluster.controller_context import ReplicaAssignment, TopicSettings
from tidelog.controller.cluster.decision_draft import DecisionDraft
from tidelog.controller.cluster.election import NOBODY, ElectionStrategy
from tidelog.controller.cluster.partition_state_machine import PartitionState
from tidelog.controller.cluster.replica_state_machine import ReplicaState
from tidelog.types import TopicPartition, Uuid


class StoredTopic(NamedTuple):
    """A topic as the store has it."""

    topic_id: Uuid
    version: int  # of its node
    assignments: Mapping[int, ReplicaAssignment]
    settings: TopicSettings | None = None  # None if the defaults hold


def topics_changed(
    draft: DecisionDraft, new: Mapping[str, StoredTopic], gone: Iterable[str]
) -> None:
    """Topics whose nodes somebody else has taken away are forgotten."""
    for name in gone:
        draft.state.remove_topic(name)
    for name, topic in new.items():
        if name in draft.gone_topics:
            continue
        draft.state.put_topic(name, topic.topic_id, topic.version, topic.assignments)
        _put_settings(draft, name, topic.settings)
    create_partitions(draft, [tp for name in new for tp in draft.state.partitions_of(name)])


def partitions_changed(draft: DecisionDraft, name: str, topic: StoredTopic) -> None:
    """Takes in partitions that are new; those of a topic on its way out are taken back.

    What the store says of partitions that are known counts as the controller's own doing.
    """
    if name in draft.gone_topics:
        return
    state = draft.state
    known = {tp.partition: state.assignments[tp] for tp in state.partitions_of(name)}
    if not state.is_to_be_deleted(name):
        state.put_topic(name, topic.topic_id, topic.version, {**topic.assignments, **known})
        unborn = [
            partition
            for partition in state.partitions_of(name)
            if state.partition_state(partition) is PartitionState.NON_EXISTENT
        ]
        create_partitions(draft, unborn)
        return
    state.topics[name] = state.topics[name]._replace(version=topic.version)
    if known and topic.assignments.keys() - known.keys():
        partition = TopicPartition(name, min(known))
        draft.assign(partition, known[partition.partition])


def create_partitions(draft: DecisionDraft, partitions: Collection[TopicPartition]) -> None:
    replicas = list(draft.state.replicas_of_all(partitions))
    partition_state_machine.mark(draft, partitions, PartitionState.NEW)
    replica_state_machine.move(draft, replicas, ReplicaState.NEW)
    partition_state_machine.bring_online(draft, partitions, ElectionStrategy.OFFLINE)
    replica_state_machine.move(draft, replicas, ReplicaState.ONLINE)


def settings_changed(draft: DecisionDraft, settings: Mapping[str, TopicSettings | None]) -> None:
    """By topic; None where the defaults hold now."""
    for name, of_topic in settings.items():
        _put_settings(draft, name, of_topic)
        end_stale_eligibility(draft, draft.state.partitions_of(name))
        partition_state_machine.elect_where_missing(draft, name)


def _put_settings(draft: DecisionDraft, name: str, of_topic: TopicSettings | None) -> None:
    if of_topic is None:
        draft.state.topic_settings.pop(name, None)
    else:
        draft.state.topic_settings[name] = of_topic


def defaults_changed(draft: DecisionDraft) -> None:
    """The defaults of all topics without settings of their own are others now."""
    end_stale_eligibility(draft, list(draft.state.leadership))
    partition_state_machine.elect_where_missing(draft)


def end_stale_eligibility(draft: DecisionDraft, partitions: Iterable[TopicPartition]) -> None:
    """Ends the eligibility of replicas (KIP-966) where the in-sync set is large enough.

    It becomes so when min.insync.replicas is lowered: from then on the leader commits without
    those replicas.
    """
    for partition in partitions:
        current = draft.state.leadership.get(partition)
        if current is None or (current.elr, current.last_known_elr) == NOBODY:
            continue
        if draft.eligible(partition, current, current) == NOBODY:
            draft.set_leadership(
                partition, current.next_epoch()._replace(elr=(), last_known_elr=())
            )
            draft.requests.tell_replicas(draft.state.replicas_of(partition), partition)
