from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.metadata import refused
from tidelog.controller.placement import (
    PlacementBroker,
    place_more_partitions,
    place_new_topic,
    rack_alternated,
    require_valid_assignment,
    require_valid_replicas,
)
from tidelog.errors import ErrorCode


def brokers(count: int) -> list[PlacementBroker]:
    return [PlacementBroker(n) for n in range(count)]


def on_racks(racks: dict[int, str]) -> list[PlacementBroker]:
    return [PlacementBroker(n, rack) for n, rack in sorted(racks.items())]


def first(_bound: int) -> int:
    return 0


def test_leaders_go_round_and_followers_shift_when_the_list_wraps() -> None:
    """The example of Kafka's AdminUtils: ten partitions, five brokers, factor 3."""
    assert place_new_topic(brokers(5), 10, 3, first) == [
        [0, 1, 2],
        [1, 2, 3],
        [2, 3, 4],
        [3, 4, 0],
        [4, 0, 1],
        [0, 2, 3],
        [1, 3, 4],
        [2, 4, 0],
        [3, 0, 1],
        [4, 1, 2],
    ]


def test_the_start_is_random() -> None:
    assert place_new_topic(brokers(3), 3, 1, lambda bound: bound - 1) == [[2], [0], [1]]


def test_six_brokers_share_thirty_replicas_evenly() -> None:
    placed = place_new_topic(brokers(6), 10, 3, first)
    spread = Counter(broker for replicas in placed for broker in replicas)
    assert sum(spread.values()) == 30
    assert set(spread.values()) <= {4, 5, 6}


def test_rack_alternation() -> None:
    assert rack_alternated({0: "1", 1: "1", 2: "1", 3: "2", 4: "2", 5: "2"}) == [0, 3, 1, 4, 2, 5]
    assert rack_alternated({0: "a", 1: "b", 2: "b", 3: "b"}) == [0, 1, 2, 3]


def test_with_racks_followers_are_elsewhere() -> None:
    """Kafka's own example: racks of brokers 0,1 / 2,3 / 4,5 in another order, factor 3."""
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    assert place_new_topic(on_racks(racks), 7, 3, first) == [
        [0, 3, 1],
        [3, 1, 5],
        [1, 5, 4],
        [5, 4, 2],
        [4, 2, 0],
        [2, 0, 3],
        [0, 4, 2],
    ]


@settings(deadline=None)
@given(
    racks=st.dictionaries(st.integers(0, 20), st.sampled_from("abcd"), min_size=1, max_size=8),
    partition_count=st.integers(1, 30),
    data=st.data(),
)
def test_replicas_are_on_as_many_racks_as_can_be(
    racks: dict[int, str], partition_count: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    draw_below = lambda bound: data.draw(st.integers(0, bound - 1))  # noqa: E731
    placed = place_new_topic(on_racks(racks), partition_count, factor, draw_below)
    assert len(placed) == partition_count
    for replicas in placed:
        assert len(set(replicas)) == factor
        rack_count = min(factor, len(set(racks.values())))
        assert len({racks[broker] for broker in replicas}) == rack_count


def test_brokers_with_and_without_racks_do_not_mix() -> None:
    with refused(ErrorCode.UNKNOWN_SERVER_ERROR):
        place_new_topic([PlacementBroker(0, "a"), PlacementBroker(1)], 1, 1, first)


def test_what_cannot_be_placed() -> None:
    with refused(ErrorCode.INVALID_REPLICATION_FACTOR) as raised:
        place_new_topic(brokers(1), 1, 3, first)
    assert raised.value.message == "Replication factor: 3 larger than available brokers: 1."
    for factor in (0, -2):
        with refused(ErrorCode.INVALID_REPLICATION_FACTOR):
            place_new_topic(brokers(1), 0, factor, first)
    for count in (0, -2):
        with refused(ErrorCode.INVALID_PARTITIONS):
            place_new_topic(brokers(1), count, 1, first)


def test_more_partitions_go_on_from_the_first_one() -> None:
    whole = place_new_topic(brokers(3), 7, 2, first)
    assert place_more_partitions(brokers(3), whole[:2], 5) == whole[2:]


def test_a_manual_assignment_is_put_in_order() -> None:
    assert require_valid_assignment([(1, [2, 0]), (0, [0, 1])], {0, 1, 2}) == [[0, 1], [2, 0]]


@pytest.mark.parametrize(
    "assignment",
    [
        [(0, [0]), (0, [1])],
        [(0, [0]), (2, [1])],
        [(-1, [0])],
        [(0, [])],
        [(0, [7])],
        [(0, [0, 0])],
        [(0, [0]), (1, [0, 1])],
    ],
    ids=["twice", "gap", "negative", "empty", "unknown broker", "broker twice", "factors differ"],
)
def test_a_bad_manual_assignment_is_refused(assignment: list[tuple[int, list[int]]]) -> None:
    with refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT):
        require_valid_assignment(assignment, {0, 1})


def test_new_partitions_have_as_many_replicas_as_the_others() -> None:
    require_valid_replicas([1], {0, 1}, 1)
    with refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT):
        require_valid_replicas([0, 1], {0, 1}, 1)
