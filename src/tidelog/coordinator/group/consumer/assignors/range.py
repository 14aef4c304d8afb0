"""The range assignor: of every topic, each subscriber gets a run of partitions.

Subscribers stand in the order of their instance ids, then of their member ids; the first ones get
one partition more where they do not come out even. So the same numbers of topics with equally many
partitions and the same subscribers go to the same member (co-partitioning, for joins). It is not
sticky; instance ids make it so over restarts.
"""

from __future__ import annotations

from tidelog.coordinator.group.consumer.assignors.spec import Members, PartitionCounts, Targets
from tidelog.types import Uuid


def assign(members: Members, counts: PartitionCounts) -> Targets:
    targets: Targets = {member_id: {} for member_id in members}
    subscribers: dict[Uuid, list[str]] = {}
    for member_id in _in_order(members):
        for topic_id in members[member_id].topics:
            subscribers.setdefault(topic_id, []).append(member_id)
    for topic_id, member_ids in sorted(subscribers.items()):
        share, extra = divmod(counts[topic_id], len(member_ids))
        start = 0
        for position, member_id in enumerate(member_ids):
            end = start + share + (position < extra)
            if start < end:
                targets[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return targets


def _in_order(members: Members) -> list[str]:
    """Static members first."""
    return sorted(
        members,
        key=lambda member_id: (
            members[member_id].instance_id is None,
            members[member_id].instance_id or member_id,
        ),
    )
