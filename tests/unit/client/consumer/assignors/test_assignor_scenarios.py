"""How partitions are shared out: the stories that textbooks tell of the four assignors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.support.assignor_groups import ASSIGNORS
from tidelog.client.consumer.assignors.assignor import (
    Assignment,
    Assignor,
    RebalanceProtocol,
    Subscription,
)
from tidelog.client.consumer.assignors.range_assignor import RangeAssignor
from tidelog.client.consumer.assignors.round_robin_assignor import RoundRobinAssignor
from tidelog.client.consumer.assignors.sticky_assignor import (
    CooperativeStickyAssignor,
    StickyAssignor,
)
from tidelog.client.consumer.offset_and_metadata import ConsumerGroupMetadata
from tidelog.types import TopicPartition


def topics(**counts: int) -> dict[str, list[tuple[str, ...]]]:
    return {topic: [()] * count for topic, count in counts.items()}


def named(assignments: Mapping[str, Assignment]) -> dict[str, set[str]]:
    return {member: {str(p) for p in row.partitions} for member, row in assignments.items()}


class Story:
    """A group whose members remember what they had."""

    def __init__(self, kind: type[Assignor], partitions: Mapping[str, Sequence[Sequence[str]]]):
        self.partitions = partitions
        self._kind = kind
        self._members: dict[str, tuple[Assignor, list[str]]] = {}
        self._owned: dict[str, Sequence[TopicPartition]] = {}
        self._generation = 0

    def join(self, member: str, *wanted: str) -> None:
        self._members[member] = (self._kind(), list(wanted))
        self._owned[member] = ()

    def leave(self, member: str) -> None:
        del self._members[member], self._owned[member]

    def rebalance(self) -> dict[str, set[str]]:
        keeps = RebalanceProtocol.COOPERATIVE in self._kind().protocols
        subscriptions = {
            member: Subscription(
                wanted,
                assignor.subscription_user_data(wanted),
                self._owned[member] if keeps else (),
                self._generation or None,
            )
            for member, (assignor, wanted) in self._members.items()
        }
        assignments = self._kind().assign(self.partitions, subscriptions)
        self._generation += 1
        for member, assignment in assignments.items():
            self._owned[member] = assignment.partitions
            metadata = ConsumerGroupMetadata("group", self._generation, member)
            self._members[member][0].on_assignment(assignment, metadata)
        return named(assignments)


def test_range_gives_the_odd_partition_of_every_topic_to_the_first_members() -> None:
    wanted = Subscription(["t0", "t1"])
    shares = RangeAssignor().assign(topics(t0=3, t1=3), {"c1": wanted, "c0": wanted})
    assert named(shares) == {"c0": {"t0-0", "t0-1", "t1-0", "t1-1"}, "c1": {"t0-2", "t1-2"}}


def test_range_starts_again_with_the_first_member_for_every_topic() -> None:
    subscriptions = {name: Subscription(["t0", "t1"]) for name in ("c0", "c1", "c2")}
    shares = named(RangeAssignor().assign(topics(t0=1, t1=2), subscriptions))
    assert shares == {"c0": {"t0-0", "t1-0"}, "c1": {"t1-1"}, "c2": set()}


def test_round_robin_spreads_over_topics() -> None:
    subscriptions = {name: Subscription(["t0", "t1"]) for name in ("c0", "c1")}
    shares = RoundRobinAssignor().assign(topics(t0=3, t1=3), subscriptions)
    assert named(shares) == {"c0": {"t0-0", "t0-2", "t1-1"}, "c1": {"t0-1", "t1-0", "t1-2"}}


def test_round_robin_overloads_the_member_that_wants_most() -> None:
    story = Story(RoundRobinAssignor, topics(t0=1, t1=2, t2=3))
    story.join("c0", "t0")
    story.join("c1", "t0", "t1")
    story.join("c2", "t0", "t1", "t2")
    assert story.rebalance() == {
        "c0": {"t0-0"},
        "c1": {"t1-0"},
        "c2": {"t1-1", "t2-0", "t2-1", "t2-2"},
    }


def test_sticky_does_not_give_it_what_another_could_have() -> None:
    story = Story(StickyAssignor, topics(t0=1, t1=2, t2=3))
    story.join("c0", "t0")
    story.join("c1", "t0", "t1")
    story.join("c2", "t0", "t1", "t2")
    assert story.rebalance() == {
        "c0": {"t0-0"},
        "c1": {"t1-0", "t1-1"},
        "c2": {"t2-0", "t2-1", "t2-2"},
    }
    story.leave("c0")
    assert story.rebalance() == {"c1": {"t0-0", "t1-0", "t1-1"}, "c2": {"t2-0", "t2-1", "t2-2"}}


def group_of_three(kind: type[Assignor]) -> Story:
    story = Story(kind, topics(t0=2, t1=2, t2=2, t3=2))
    for member in ("c0", "c1", "c2"):
        story.join(member, "t0", "t1", "t2", "t3")
    return story


def test_round_robin_deals_anew_when_a_member_leaves() -> None:
    story = group_of_three(RoundRobinAssignor)
    before = story.rebalance()
    story.leave("c1")
    after = story.rebalance()
    assert not before["c2"] <= after["c2"]


def test_sticky_moves_only_what_the_leaving_member_had() -> None:
    story = group_of_three(StickyAssignor)
    before = story.rebalance()
    story.leave("c1")
    after = story.rebalance()
    assert before["c0"] <= after["c0"]
    assert before["c2"] <= after["c2"]
    assert {len(share) for share in after.values()} == {4}


def test_cooperative_members_hand_a_partition_over_in_two_rebalances() -> None:
    story = Story(CooperativeStickyAssignor, topics(t=6))
    story.join("a", "t")
    story.join("b", "t")
    before = story.rebalance()
    story.join("c", "t")
    first = story.rebalance()
    assert first["c"] == set()
    assert first["a"] < before["a"]
    assert first["b"] < before["b"]
    second = story.rebalance()
    assert (second["a"], second["b"]) == (first["a"], first["b"])
    assert second["c"] == (before["a"] | before["b"]) - first["a"] - first["b"]
    assert story.rebalance() == second


@pytest.mark.parametrize("kind", ASSIGNORS.values(), ids=ASSIGNORS)
class TestEveryAssignor:
    def test_members_beyond_the_partitions_are_idle(self, kind: type[Assignor]) -> None:
        subscriptions = {f"c{number}": Subscription(["t"]) for number in range(5)}
        shares = named(kind().assign(topics(t=3), subscriptions))
        assert sorted(len(share) for share in shares.values()) == [0, 0, 1, 1, 1]

    def test_a_topic_that_does_not_exist_gives_nothing(self, kind: type[Assignor]) -> None:
        assert named(kind().assign({}, {"c": Subscription(["gone"])})) == {"c": set()}

    def test_a_topic_that_nobody_wants_is_given_to_nobody(self, kind: type[Assignor]) -> None:
        shares = kind().assign(topics(t=1, other=2), {"c": Subscription(["t"])})
        assert named(shares) == {"c": {"t-0"}}

    def test_no_members_get_nothing(self, kind: type[Assignor]) -> None:
        assert kind().assign(topics(t=1), {}) == {}

    def test_its_name_is_kafkas(self, kind: type[Assignor]) -> None:
        assert ASSIGNORS[kind().name] is kind
        assert kind().version == 0
        assert RebalanceProtocol.EAGER in kind().protocols


@pytest.mark.parametrize("kind", [RangeAssignor, RoundRobinAssignor])
def test_static_members_keep_their_place_under_a_new_member_id(kind: type[Assignor]) -> None:
    rows = {"one": Subscription(["t"], group_instance_id="i1"), "two": Subscription(["t"])}
    again = {"z": Subscription(["t"], group_instance_id="i1"), "two": Subscription(["t"])}
    assert kind().assign(topics(t=3), rows)["one"] == kind().assign(topics(t=3), again)["z"]


IN_TURN = {"t": [("a",), ("b",), ("a",), ("b",)]}


class TestRacks:
    @pytest.mark.parametrize("kind", [RangeAssignor, StickyAssignor, CooperativeStickyAssignor])
    def test_members_read_in_their_own_rack(self, kind: type[Assignor]) -> None:
        subscriptions = {
            "m1": Subscription(["t"], rack="b"),
            "m2": Subscription(["t"], rack="a"),
        }
        shares = named(kind().assign(IN_TURN, subscriptions))
        assert shares == {"m1": {"t-1", "t-3"}, "m2": {"t-0", "t-2"}}

    @pytest.mark.parametrize("kind", [RangeAssignor, StickyAssignor, CooperativeStickyAssignor])
    def test_balance_comes_before_racks(self, kind: type[Assignor]) -> None:
        subscriptions = {name: Subscription(["t"], rack="a") for name in ("m1", "m2")}
        shares = named(kind().assign(IN_TURN, subscriptions))
        assert {len(share) for share in shares.values()} == {2}

    def test_range_keeps_topics_of_one_size_aligned(self) -> None:
        racks = [("a",), ("b",), ("b",), ("a",)]
        subscriptions = {
            "m1": Subscription(["t", "u"], rack="a"),
            "m2": Subscription(["t", "u"], rack="b"),
        }
        shares = named(RangeAssignor().assign({"t": racks, "u": racks}, subscriptions))
        assert shares == {"m1": {"t-0", "t-3", "u-0", "u-3"}, "m2": {"t-1", "t-2", "u-1", "u-2"}}


class TestConflicts:
    def test_the_later_generation_keeps_a_partition_that_two_claim(self) -> None:
        claimed = [TopicPartition("t", 0)]
        subscriptions = {
            "old": Subscription(["t"], None, claimed, 3),
            "new": Subscription(["t"], None, claimed, 4),
        }
        shares = named(CooperativeStickyAssignor().assign(topics(t=2), subscriptions))
        assert shares == {"new": {"t-0"}, "old": {"t-1"}}

    def test_a_partition_claimed_twice_in_one_generation_is_nobodys_at_first(self) -> None:
        claimed = [TopicPartition("t", 0)]
        subscriptions = {name: Subscription(["t"], None, claimed, 4) for name in ("a", "b")}
        shares = named(CooperativeStickyAssignor().assign(topics(t=1), subscriptions))
        assert shares == {"a": set(), "b": set()}

    @pytest.mark.parametrize("gone", [TopicPartition("t", 2), TopicPartition("t", -1)])
    def test_partitions_that_are_gone_are_forgotten(self, gone: TopicPartition) -> None:
        """A topic made anew with fewer partitions."""
        owned = [TopicPartition("t", 0), gone]
        subscriptions = {
            "a": Subscription(["t"], None, owned, 4),
            "b": Subscription(["t"], None, [TopicPartition("t", 1)], 4),
        }
        shares = named(CooperativeStickyAssignor().assign(topics(t=2), subscriptions))
        assert shares == {"a": {"t-0"}, "b": {"t-1"}}

    def test_a_member_that_wants_nothing_gets_nothing(self) -> None:
        for first, second in (("a", "b"), ("b", "a")):
            subscriptions = {first: Subscription([]), second: Subscription(["t"])}
            shares = named(StickyAssignor().assign(topics(t=2), subscriptions))
            assert shares == {first: set(), second: {"t-0", "t-1"}}
