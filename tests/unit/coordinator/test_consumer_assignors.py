"""The server-side assignors: complete, balanced, sticky, in order, whatever the group."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.coordinator.group.consumer.assignors import (
    Assignor,
    MemberSpec,
    Targets,
    assign_range,
    assign_uniform,
    assignors_of,
)
from tidelog.coordinator.group.consumer.consumer_group_member import Partitions
from tidelog.types import Uuid

ASSIGNORS = [pytest.param(a, id=n) for n, a in assignors_of(["uniform", "range"]).items()]


def topic(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


counts_of_topics = st.lists(st.integers(1, 12), min_size=1, max_size=5).map(
    lambda counts: {topic(number): count for number, count in enumerate(counts)}
)


@st.composite
def groups(
    draw: st.DrawFn, *, is_homogeneous: bool
) -> tuple[dict[str, MemberSpec], dict[Uuid, int]]:
    """Members with subscriptions, and targets of an earlier time, which may be nonsense."""
    counts = draw(counts_of_topics)
    all_topics = frozenset(counts)
    subscriptions = st.frozensets(st.sampled_from(sorted(counts)))
    members = {}
    for number in range(draw(st.integers(1, 8))):
        target: Partitions = draw(
            st.dictionaries(
                st.sampled_from([*sorted(counts), topic(99)]),
                st.frozensets(st.integers(0, 14), min_size=1, max_size=6),
                max_size=3,
            )
        )
        topics = all_topics if is_homogeneous else draw(subscriptions)
        members[f"m{number}"] = MemberSpec(topics, target)
    return members, counts


def owners(targets: Targets) -> Counter[tuple[Uuid, int]]:
    return Counter(
        (topic_id, number)
        for target in targets.values()
        for topic_id, numbers in target.items()
        for number in numbers
    )


def sizes(targets: Targets) -> dict[str, int]:
    return {name: sum(map(len, target.values())) for name, target in targets.items()}


def with_targets(members: dict[str, MemberSpec], targets: Targets) -> dict[str, MemberSpec]:
    return {name: spec._replace(target=targets.get(name, {})) for name, spec in members.items()}


@pytest.mark.parametrize("assign", ASSIGNORS)
@given(st.one_of(groups(is_homogeneous=True), groups(is_homogeneous=False)))
def test_every_subscribed_partition_has_one_owner_who_is_subscribed(
    assign: Assignor, group: tuple[dict[str, MemberSpec], dict[Uuid, int]]
) -> None:
    members, counts = group
    targets = assign(members, counts)
    assert targets.keys() == members.keys()
    subscribed = frozenset().union(*(spec.topics for spec in members.values()))
    assert owners(targets) == {
        (topic_id, number): 1 for topic_id in subscribed for number in range(counts[topic_id])
    }
    assert all(members[name].topics >= target.keys() for name, target in targets.items())


@given(groups(is_homogeneous=True))
def test_uniform_shares_differ_by_one_at_most(
    group: tuple[dict[str, MemberSpec], dict[Uuid, int]],
) -> None:
    found = sizes(assign_uniform(*group)).values()
    assert max(found) - min(found) <= 1


@given(groups(is_homogeneous=False))
def test_uniform_leaves_no_topic_whose_subscribers_could_be_more_even(
    group: tuple[dict[str, MemberSpec], dict[Uuid, int]],
) -> None:
    members, counts = group
    targets = assign_uniform(members, counts)
    found = sizes(targets)
    for topic_id in counts:
        subscribers = [name for name, spec in members.items() if topic_id in spec.topics]
        for giver in subscribers:
            if targets[giver].get(topic_id):
                assert all(found[giver] - found[taker] <= 1 for taker in subscribers)


@given(st.one_of(groups(is_homogeneous=True), groups(is_homogeneous=False)))
def test_uniform_moves_nothing_that_is_balanced(
    group: tuple[dict[str, MemberSpec], dict[Uuid, int]],
) -> None:
    members, counts = group
    once = assign_uniform(members, counts)
    assert assign_uniform(with_targets(members, once), counts) == once


@given(groups(is_homogeneous=True))
def test_uniform_moves_no_more_than_a_newcomer_must_get(
    group: tuple[dict[str, MemberSpec], dict[Uuid, int]],
) -> None:
    members, counts = group
    before = assign_uniform(members, counts)
    newcomer = MemberSpec(frozenset(counts))
    after = assign_uniform({**with_targets(members, before), "new": newcomer}, counts)
    for name, target in before.items():
        kept = {topic_id: after[name].get(topic_id, frozenset()) for topic_id in target}
        assert all(kept[topic_id] <= target[topic_id] for topic_id in target), "got what others had"
    assert sizes(after)["new"] == sum(counts.values()) // (len(members) + 1)


@given(groups(is_homogeneous=True), st.data())
def test_uniform_gives_only_what_a_leaver_had(
    group: tuple[dict[str, MemberSpec], dict[Uuid, int]], data: st.DataObject
) -> None:
    members, counts = group
    before = assign_uniform(members, counts)
    staying = with_targets(members, before)
    leaver = data.draw(st.sampled_from(sorted(members)))
    del staying[leaver]
    if not staying:
        return
    after = assign_uniform(staying, counts)
    for name in staying:
        assert all(
            numbers <= after[name].get(topic_id, frozenset())
            for topic_id, numbers in before[name].items()
        )


@given(counts_of_topics, st.integers(1, 8))
def test_range_gives_runs_in_the_order_of_the_members(
    counts: dict[Uuid, int], member_count: int
) -> None:
    names = [f"m{number}" for number in range(member_count)]
    members = {name: MemberSpec(frozenset(counts)) for name in reversed(names)}
    targets = assign_range(members, counts)
    for topic_id, count in counts.items():
        runs = [sorted(targets[name].get(topic_id, ())) for name in names]
        assert [number for run in runs for number in run] == list(range(count))
        assert all(len(first) >= len(second) for first, second in pairwise(runs))
        assert len(runs[0]) - len(runs[-1]) <= 1


def test_range_puts_equal_numbers_of_equal_topics_together() -> None:
    counts = {topic(1): 4, topic(2): 4}
    members = {name: MemberSpec(frozenset(counts)) for name in ("a", "b", "c")}
    targets = assign_range(members, counts)
    assert targets["a"] == {topic(1): {0, 1}, topic(2): {0, 1}}
    assert all(target[topic(1)] == target[topic(2)] for target in targets.values())


def test_range_puts_static_members_first_by_their_instance_ids() -> None:
    counts = {topic(1): 3}
    members = {
        "a": MemberSpec(frozenset(counts)),
        "y": MemberSpec(frozenset(counts), instance_id="2"),
        "z": MemberSpec(frozenset(counts), instance_id="1"),
    }
    targets = assign_range(members, counts)
    assert targets == {"z": {topic(1): {0}}, "y": {topic(1): {1}}, "a": {topic(1): {2}}}


@pytest.mark.parametrize("assign", ASSIGNORS)
def test_a_group_without_members_or_topics_has_nothing_to_share(assign: Assignor) -> None:
    assert assign({}, {}) == {}
    assert assign({"a": MemberSpec(frozenset())}, {}) == {"a": {}}


def test_more_members_than_partitions_leave_some_without() -> None:
    members = {f"m{number}": MemberSpec(frozenset({topic(1)})) for number in range(5)}
    assert sorted(sizes(assign_uniform(members, {topic(1): 2})).values()) == [0, 0, 0, 1, 1]


@settings(max_examples=3)
@given(groups(is_homogeneous=False))
def test_kafkas_class_names_mean_the_same_assignors(
    group: tuple[dict[str, MemberSpec], dict[Uuid, int]],
) -> None:
    package = "org.apache.kafka.coordinator.group.assignor."
    named = assignors_of([package + "RangeAssignor", package + "UniformAssignor"])
    assert list(named) == ["range", "uniform"]
    assert named["uniform"](*group) == assign_uniform(*group)


def test_a_large_group_is_shared_out_in_time() -> None:
    from time import thread_time

    counts = {topic(number): 100 for number in range(20)}
    members = {f"m{number}": MemberSpec(frozenset(counts)) for number in range(500)}
    began = thread_time()
    targets = assign_uniform(members, counts)
    mixed = {
        name: spec._replace(topics=frozenset(sorted(counts)[: 5 + number % 10]))
        for number, (name, spec) in enumerate(with_targets(members, targets).items())
    }
    assign_uniform(mixed, counts)
    assert thread_time() - began < 1.0
