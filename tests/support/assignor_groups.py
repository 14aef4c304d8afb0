"""Groups that live through random rebalances, for the tests of assignors.

A `RandomGroup` has topics with racks and members with an assignor each. `churn` lets members come,
go, change their minds, lose an assignment or come back from an old generation; `subscriptions` is
what the leader would see; `settle` hands an assignment out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from tidelog.client.consumer.assignors.assignor import (
    Assignment,
    Assignor,
    RebalanceProtocol,
    Subscription,
)
from tidelog.client.consumer.assignors.consumer_protocol import encode_subscription
from tidelog.client.consumer.assignors.range_assignor import RangeAssignor
from tidelog.client.consumer.assignors.round_robin_assignor import RoundRobinAssignor
from tidelog.client.consumer.assignors.sticky_assignor import (
    CooperativeStickyAssignor,
    StickyAssignor,
)
from tidelog.client.consumer.offset_and_metadata import ConsumerGroupMetadata
from tidelog.types import TopicPartition

ASSIGNORS: dict[str, type[Assignor]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
RACKS = ("rack-a", "rack-b", "rack-c")


@dataclass
class Member:
    member_id: str
    topics: list[str]
    assignor: Assignor
    group_instance_id: str | None = None
    rack: str | None = None
    subscription_version: int = 3
    owned: list[TopicPartition] = field(default_factory=list)
    generation: int = -1

    def subscription(self) -> Subscription:
        is_cooperative = RebalanceProtocol.COOPERATIVE in self.assignor.protocols
        version = self.subscription_version
        return Subscription(
            self.topics,
            self.assignor.subscription_user_data(self.topics),
            list(self.owned) if is_cooperative and version >= 1 else [],
            self.generation if version >= 2 and self.generation >= 0 else None,
            self.group_instance_id,
            self.rack if version >= 3 else None,
        )


class RandomGroup:
    def __init__(self, random: Random, assignor: str) -> None:
        self._random = random
        self._assignor = ASSIGNORS[assignor]
        self._members_max = random.choice((2, 5, 10, 10, 40))
        self._has_racks = random.random() < 0.4
        self._has_one_subscription = random.random() < 0.5
        self.generation = 0
        topics = [f"topic-{n}" for n in range(random.randint(1, 6))]
        self.partitions = {topic: self._new_partitions() for topic in topics}
        self._names = [*topics, "missing"]
        self._shared_topics = self._some_topics()
        self.members: dict[str, Member] = {}
        for _ in range(random.randint(1, self._members_max)):
            self._join()

    def _new_partitions(self) -> list[frozenset[str]]:
        count = self._random.choice((1, 2, 3, 3, 4, 6, 8, 12))
        return [self._new_racks() for _ in range(count)]

    def _new_racks(self) -> frozenset[str]:
        if not self._has_racks:
            return frozenset()
        return frozenset(self._random.sample(RACKS, self._random.choice((0, 1, 1, 2, 2, 3))))

    def _some_topics(self) -> list[str]:
        return sorted(self._random.sample(self._names, self._random.randint(1, len(self._names))))

    def _join(self) -> None:
        random = self._random
        is_static = random.random() < 0.2
        member = Member(
            f"{random.choice(('consumer', 'sarama', 'rdkafka'))}-{random.getrandbits(96):024x}",
            self._shared_topics if self._has_one_subscription else self._some_topics(),
            self._assignor(),
            f"instance-{random.getrandbits(24):06x}" if is_static else None,
            random.choice((*RACKS, "elsewhere", None)) if self._has_racks else None,
            random.choice((0, 1, 2, 3)) if random.random() < 0.1 else 3,
        )
        self.members[member.member_id] = member

    def churn(self) -> None:
        random = self._random
        for _ in range(random.randint(1, 3)):
            what = random.random()
            member = random.choice(list(self.members.values()))
            if what < 0.3 and len(self.members) < self._members_max:
                self._join()
            elif what < 0.55 and len(self.members) > 1:
                del self.members[member.member_id]
            elif what < 0.7:
                self._has_one_subscription = False
                member.topics = self._some_topics()
            elif what < 0.8:
                topic = random.choice(sorted(self.partitions))
                self.partitions[topic] = [*self.partitions[topic], self._new_racks()]
            elif what < 0.9:
                self._claim(member, random.choice(list(self.members.values())))
            elif member.generation > 0:
                member.generation -= 1

    def come_and_go(self) -> None:
        """A member more or less, nothing else."""
        if self._random.random() < 0.5 or len(self.members) == 1:
            self._join()
        else:
            del self.members[self._random.choice(list(self.members))]

    def _claim(self, member: Member, other: Member) -> None:
        """A member that was cut off believes in what another has meanwhile."""
        member.owned = sorted({*member.owned, *other.owned[:2]})
        assignment = Assignment(member.owned)
        member.assignor.on_assignment(assignment, ConsumerGroupMetadata("g", member.generation))

    def subscriptions(self) -> dict[str, Subscription]:
        rows = list(self.members.values())
        self._random.shuffle(rows)
        return {row.member_id: row.subscription() for row in rows}

    def sent_subscriptions(self) -> dict[str, tuple[bytes, str | None]]:
        """As JoinGroup brings them: their bytes and the group instance id."""
        return {
            member: (
                encode_subscription(row, self.members[member].subscription_version),
                row.group_instance_id,
            )
            for member, row in self.subscriptions().items()
        }

    def settle(self, assignments: dict[str, Assignment], *, losing: float = 0.05) -> None:
        """`losing`: how many of the members do not hear of their assignment."""
        self.generation += 1
        for member_id, assignment in assignments.items():
            if self._random.random() < losing:
                continue
            member = self.members[member_id]
            member.owned = list(assignment.partitions)
            member.generation = self.generation
            metadata = ConsumerGroupMetadata("g", self.generation, member_id)
            member.assignor.on_assignment(assignment, metadata)
