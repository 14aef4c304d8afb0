"""roundrobin: all partitions of all topics in order, to one member after the other.

Members that do not want the topic are passed over, so the result is even only where all want the
same topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.client.consumer.assignors.assignor import Assignment, Assignor
from tidelog.client.consumer.assignors.java_order import members_in_order
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.client.consumer.assignors.assignor import PartitionRacks, Subscription

NAME: Final = "roundrobin"


class RoundRobinAssignor(Assignor):
    @property
    def name(self) -> str:
        return NAME

    def assign(
        self, partitions: PartitionRacks, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, Assignment]:
        shares: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
        wanted = {member: frozenset(row.topics) for member, row in subscriptions.items()}
        members = members_in_order(subscriptions, subscriptions)
        turn = 0
        for topic in sorted({topic for topics in wanted.values() for topic in topics}):
            for partition in range(len(partitions.get(topic, ()))):
                while topic not in wanted[members[turn]]:
                    turn = (turn + 1) % len(members)
                shares[members[turn]].append(TopicPartition(topic, partition))
                turn = (turn + 1) % len(members)
        return {member: Assignment(share) for member, share in shares.items()}
