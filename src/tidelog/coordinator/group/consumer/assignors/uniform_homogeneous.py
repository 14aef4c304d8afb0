"""Equal shares for members that are all subscribed to the same topics.

Each member's quota is the number of partitions by the number of members; what is left over goes,
one each, to those who have most already, so that a balanced assignment stays as it is. (Kafka gives
it to those who come first, and moves partitions for it.) Then everybody gives up what is above its
quota, and gets what is free up to it.
"""

from __future__ import annotations

from tidelog.coordinator.group.consumer.assignors.spec import (
    Members,
    PartitionCounts,
    Shares,
    Targets,
)
from tidelog.types import Uuid


def assign(members: Members, counts: PartitionCounts) -> Targets:
    if not members:
        return {}
    shares = Shares(members, counts)
    topic_ids = sorted(next(iter(members.values())).topics)
    quotas = _quotas(shares, sum(counts[topic_id] for topic_id in topic_ids))
    for member_id, quota in quotas.items():
        _give_up_surplus(shares, member_id, quota)
    free = [(topic_id, number) for topic_id in topic_ids for number in shares.unassigned(topic_id)]
    _share_out(shares, free, quotas)
    return shares.targets()


def _quotas(shares: Shares, partition_count: int) -> dict[str, int]:
    quota, extra = divmod(partition_count, len(shares.sizes))
    by_size = sorted(shares.sizes, key=lambda member_id: -shares.sizes[member_id])
    return {member_id: quota + (place < extra) for place, member_id in enumerate(by_size)}


def _give_up_surplus(shares: Shares, member_id: str, quota: int) -> None:
    surplus = shares.sizes[member_id] - quota
    if surplus <= 0:
        return
    held = [
        (topic_id, number)
        for topic_id, numbers in sorted(shares.held[member_id].items())
        for number in sorted(numbers)
    ]
    for topic_id, number in held[-surplus:]:
        shares.take(member_id, topic_id, number)


def _share_out(shares: Shares, free: list[tuple[Uuid, int]], quotas: dict[str, int]) -> None:
    remaining = iter(free)
    for member_id in shares.sizes:
        for _ in range(quotas[member_id] - shares.sizes[member_id]):
            shares.give(member_id, *next(remaining))
