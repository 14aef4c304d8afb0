"""The uniform assignor: everybody gets equally many partitions, and keeps what it had.

Balance comes before stickiness. If all members are subscribed to the same topics, the numbers of
partitions differ by one at most (`uniform_homogeneous`); else as little as subscriptions and a
bounded effort allow (`uniform_heterogeneous`).
"""

from __future__ import annotations

from tidelog.coordinator.group.consumer.assignors import (
    uniform_heterogeneous,
    uniform_homogeneous,
)
from tidelog.coordinator.group.consumer.assignors.spec import (
    Members,
    PartitionCounts,
    Targets,
    is_homogeneous,
)


def assign(members: Members, counts: PartitionCounts) -> Targets:
    if is_homogeneous(members):
        return uniform_homogeneous.assign(members, counts)
    return uniform_heterogeneous.assign(members, counts)
