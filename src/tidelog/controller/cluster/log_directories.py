"""Log directories that fail, seen through the answers of their brokers: decisions.

A broker that loses a directory leaves a node under /log_dir_event_notification. It is then told
once more to host all its replicas, and answers KAFKA_STORAGE_ERROR for those it lost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidelog.controller.cluster import broker_changes, replica_machine
from tidelog.controller.cluster.context import Replica
from tidelog.controller.cluster.draft import Draft
from tidelog.controller.cluster.replica_state import ReplicaState
from tidelog.errors import ErrorCode
from tidelog.types import TopicPartition


def ask_again(draft: Draft, broker_ids: Collection[int]) -> None:
    replicas = draft.state.replicas_on(broker_ids)
    live = [r for r in replicas if r.broker_id in draft.state.brokers]
    replica_machine.move(
        draft,
        [r for r in live if not draft.state.is_to_be_deleted(r.partition.topic)],
        ReplicaState.ONLINE,
    )


def hosting_answered(
    draft: Draft, broker_id: int, errors: Mapping[TopicPartition, ErrorCode]
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
        broker_changes.replicas_offline(draft, [Replica(tp, broker_id) for tp in sorted(fresh)])
