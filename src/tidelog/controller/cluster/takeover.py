"""What a new controller does first, once it knows what the store says; a decision.

All brokers learn of each other. Replicas and partitions get their states; who is gone leaves the
in-sync sets, and partitions without a leader get one where there is somebody to elect. Then goes on
what the controller before may have left half done: reassignments, deletions, elections asked for.

A broker may have died and come back while there was no controller. The zxids tell: a member of an
in-sync set whose registration is younger than the last write of the set is not the one that was in
it. It is taken out, as if its death had been seen; Kafka would let it go on under its old epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from tidelog.controller.cluster import (
    broker_changes,
    leader_balance,
    partition_machine,
    partition_reassignment,
    replica_machine,
    topic_changes,
    topic_deletion,
)
from tidelog.controller.cluster.context import Replica
from tidelog.controller.cluster.draft import Draft
from tidelog.types import TopicPartition


class Inheritance(NamedTuple):
    """What the store says besides the context."""

    state_zxids: Mapping[TopicPartition, int]  # of the last write of each state node
    topics_to_delete: Collection[str] = ()
    # Of /admin/reassign_partitions.
    reassignments: Mapping[TopicPartition, Sequence[int]] = MappingProxyType({})
    preferred_elections: Collection[TopicPartition] = ()


def take_over(draft: Draft, inheritance: Inheritance) -> None:
    draft.requests.introduce_brokers()
    topic_deletion.recall(draft, inheritance.topics_to_delete)
    topic_changes.end_stale_eligibility(draft, list(draft.state.leadership))
    _absorb_missed_restarts(draft, inheritance.state_zxids)
    replica_machine.start(draft)
    partition_machine.start(draft)
    started = partition_reassignment.start_all(draft, inheritance.reassignments)
    partition_reassignment.resume(draft, draft.state.reassigning - started)
    topic_deletion.resume(draft)
    leader_balance.elect_preferred(draft, inheritance.preferred_elections)


def _absorb_missed_restarts(draft: Draft, state_zxids: Mapping[TopicPartition, int]) -> None:
    brokers = draft.state.brokers
    for partition, zxid in state_zxids.items():
        state = draft.state.leadership.get(partition)
        if state is None:
            continue  # gone since it was read
        restarted = [
            Replica(partition, broker_id)
            for broker_id in (*state.isr, *state.elr)
            if broker_id in brokers and brokers[broker_id].epoch > zxid
        ]
        for replica in replica_machine.leaders_last(draft, restarted):
            replica_machine.leave_isr(draft, replica)
            broker_changes.weigh_restart(draft, replica)
