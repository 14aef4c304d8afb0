"""What every answer of the assignors has: all partitions once, even shares, few moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.assignor_groups import ASSIGNORS, RandomGroup
from tidelog.client.consumer.assignors.assignor import Assignment, Subscription
from tidelog.client.consumer.assignors.sticky_assignor import (
    CooperativeStickyAssignor,
    StickyAssignor,
)
from tidelog.types import TopicPartition

REBALANCES = 4
seeds = st.integers(0, 1 << 64)


def wanted_partitions(
    group: RandomGroup, subscriptions: Mapping[str, Subscription]
) -> set[TopicPartition]:
    wanted = {topic for row in subscriptions.values() for topic in row.topics}
    return {
        TopicPartition(topic, partition)
        for topic in wanted & group.partitions.keys()
        for partition in range(len(group.partitions[topic]))
    }


def given_out(assignments: Mapping[str, Assignment]) -> list[TopicPartition]:
    return [partition for row in assignments.values() for partition in row.partitions]


def have_one_subscription(subscriptions: Mapping[str, Subscription]) -> bool:
    return len({frozenset(row.topics) for row in subscriptions.values()}) == 1


@pytest.mark.parametrize("assignor", ASSIGNORS)
@given(seeds)
@settings(max_examples=60)
def test_every_partition_goes_to_one_member_that_wants_it(assignor: str, seed: int) -> None:
    group = RandomGroup(Random(seed), assignor)
    for _ in range(REBALANCES):
        subscriptions = group.subscriptions()
        assignments = ASSIGNORS[assignor]().assign(group.partitions, subscriptions)
        assert assignments.keys() == subscriptions.keys()
        given = given_out(assignments)
        assert len(given) == len(set(given))
        for member, row in assignments.items():
            assert {partition.topic for partition in row.partitions} <= {
                *subscriptions[member].topics
            }
        missing = wanted_partitions(group, subscriptions) - set(given)
        assert set(given) <= wanted_partitions(group, subscriptions)
        # Cooperative members have to give these up first.
        owned = {p for row in subscriptions.values() for p in row.owned_partitions}
        assert missing <= owned
        group.settle(assignments)
        group.churn()


@given(seeds)
@settings(max_examples=100)
def test_range_shares_every_topic_evenly(seed: int) -> None:
    group = RandomGroup(Random(seed), "range")
    subscriptions = group.subscriptions()
    assignments = ASSIGNORS["range"]().assign(group.partitions, subscriptions)
    for topic in group.partitions:
        counts = [
            sum(partition.topic == topic for partition in assignments[member].partitions)
            for member, row in subscriptions.items()
            if topic in row.topics
        ]
        assert not counts or max(counts) - min(counts) <= 1


@given(seeds)
@settings(max_examples=100)
def test_range_without_racks_gives_every_member_one_range(seed: int) -> None:
    group = RandomGroup(Random(seed), "range")
    subscriptions = {
        member: row._replace(rack=None) for member, row in group.subscriptions().items()
    }
    for row in ASSIGNORS["range"]().assign(group.partitions, subscriptions).values():
        for topic in group.partitions:
            numbers = [each.partition for each in row.partitions if each.topic == topic]
            assert numbers == list(range(numbers[0], numbers[-1] + 1)) if numbers else True


@pytest.mark.parametrize("assignor", ["roundrobin", "sticky"])
@given(seeds)
@settings(max_examples=100)
def test_members_that_want_the_same_get_as_much(assignor: str, seed: int) -> None:
    group = RandomGroup(Random(seed), assignor)
    for _ in range(REBALANCES):
        subscriptions = group.subscriptions()
        assignments = ASSIGNORS[assignor]().assign(group.partitions, subscriptions)
        if have_one_subscription(subscriptions):
            counts = [len(row.partitions) for row in assignments.values()]
            assert max(counts) - min(counts) <= 1
        group.settle(assignments)
        group.churn()


def could_take(
    assignments: Mapping[str, Assignment], subscriptions: Mapping[str, Subscription]
) -> list[tuple[str, TopicPartition]]:
    """Partitions of members with at least two more than another that wants the topic."""
    return [
        (member, partition)
        for member, row in subscriptions.items()
        for other in assignments.values()
        if len(other.partitions) > len(assignments[member].partitions) + 1
        for partition in other.partitions
        if partition.topic in row.topics
    ]


@given(seeds)
@settings(max_examples=150)
def test_sticky_leaves_nothing_to_even_out(seed: int) -> None:
    group = RandomGroup(Random(seed), "sticky")
    for _ in range(REBALANCES):
        subscriptions = group.subscriptions()
        assignments = StickyAssignor().assign(group.partitions, subscriptions)
        assert not could_take(assignments, subscriptions)
        group.settle(assignments)
        group.churn()


@given(seeds)
@settings(max_examples=150)
def test_sticky_members_that_want_the_same_keep_as_much_as_even_shares_allow(seed: int) -> None:
    group = RandomGroup(Random(seed), "cooperative-sticky")
    subscriptions = {
        member: row._replace(rack=None) for member, row in group.subscriptions().items()
    }
    assume(have_one_subscription(subscriptions))
    random = Random(seed)
    partitions = sorted(wanted_partitions(group, subscriptions))
    owned: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
    for partition in random.sample(partitions, random.randint(0, len(partitions))):
        owned[random.choice(list(owned))].append(partition)
    rows = {
        member: row._replace(owned_partitions=owned[member], generation=1)
        for member, row in subscriptions.items()
    }
    assignments = CooperativeStickyAssignor().assign(group.partitions, rows)
    kept = Counter(
        {member: len({*owned[member]} & {*assignments[member].partitions}) for member in owned}
    )
    quota, extra_members = divmod(len(partitions), len(rows))
    exceeding = sum(len(each) > quota for each in owned.values())
    most = sum(min(len(each), quota) for each in owned.values()) + min(exceeding, extra_members)
    assert kept.total() == most


@pytest.mark.parametrize("assignor", ["sticky", "cooperative-sticky"])
@given(seeds)
@settings(max_examples=100)
def test_nothing_moves_in_a_group_that_stays_as_it_is(assignor: str, seed: int) -> None:
    group = RandomGroup(Random(seed), assignor)
    for member in group.members.values():
        member.subscription_version = 3
    settled: dict[str, set[TopicPartition]] = {}
    for turn in range(4):
        assignments = ASSIGNORS[assignor]().assign(group.partitions, group.subscriptions())
        shares = {member: {*row.partitions} for member, row in assignments.items()}
        if turn == 3:
            assert shares == settled
        settled = shares
        group.settle(assignments, losing=0)


@given(seeds)
@settings(max_examples=150)
def test_cooperative_members_never_have_a_partition_at_the_same_time(seed: int) -> None:
    group = RandomGroup(Random(seed), "cooperative-sticky")
    for each in group.members.values():
        each.subscription_version = 3
    for _ in range(REBALANCES):
        subscriptions = group.subscriptions()
        assignments = CooperativeStickyAssignor().assign(group.partitions, subscriptions)
        for member, row in assignments.items():
            for other, subscription in subscriptions.items():
                if other != member and subscription.generation == group.generation:
                    assert not {*row.partitions} & {*subscription.owned_partitions}
        group.settle(assignments, losing=0)
        group.come_and_go()
