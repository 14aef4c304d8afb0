from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.admin.brokers import TopicPartitionReplica
from tidelog.client.admin.partitions import PartitionReassignment
from tidelog.tools.reassignment import (
    BadReassignment,
    format_moves,
    parse_moves,
    parse_topics,
    plan_moves,
    throttles_for,
)
from tidelog.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_file_comes_back_as_it_was_written() -> None:
    moves = {T1: [2, 3], T0: [1]}
    assert parse_moves(format_moves(moves)).replicas == moves


def test_directories_are_those_that_are_named() -> None:
    row = {"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/d"]}
    wanted = parse_moves(json.dumps({"partitions": [row]}))
    assert wanted.log_dirs == {TopicPartitionReplica("t", 0, 2): "/d"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "no JSON"),
        ("[" * 50_000, "no JSON"),
        ("[]", "no JSON object"),
        ('{"version": 2}', "version"),
        ("{}", "cannot be empty"),
        ('{"partitions": 1}', "no list"),
        ('{"partitions": [1]}', "A partition has"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [true]}]}', "A partition has"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "cannot be empty"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}',
            "multiple entries",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": []}]}',
            "different from size",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]},'
            '{"topic": "t", "partition": 0, "replicas": [2]}]}',
            "duplicate topic partitions: t-0",
        ),
    ],
)
def test_a_bad_file_is_refused(text: str, why: str) -> None:
    with pytest.raises(BadReassignment, match=why):
        parse_moves(text)


def test_topics_to_move_are_named_once() -> None:
    assert parse_topics('{"topics": [{"topic": "a"}, {"topic": "b"}], "version": 1}') == ["a", "b"]
    with pytest.raises(BadReassignment, match="duplicate"):
        parse_topics('{"topics": [{"topic": "a"}, {"topic": "a"}]}')
    with pytest.raises(BadReassignment, match="name"):
        parse_topics('{"topics": ["a"]}')


@given(
    st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True), max_size=12),
    st.sets(st.integers(0, 8), min_size=3, max_size=6),
    st.sampled_from([None, 1, 2, 3]),
)
def test_a_plan_is_even_valid_and_moves_no_more_than_it_must(
    replicas: list[list[int]], brokers: set[int], factor: int | None
) -> None:
    current = {TopicPartition("t", index): each for index, each in enumerate(replicas)}
    planned = plan_moves(current, dict.fromkeys(brokers), factor)
    assert planned.keys() == current.keys()
    load = Counter(dict.fromkeys(brokers, 0))
    for partition, chosen in planned.items():
        assert len(chosen) == len(set(chosen)) == (factor or len(current[partition]))
        assert set(chosen) <= brokers
        load.update(chosen)
    assert max(load.values()) - min(load.values()) <= 1
    assert plan_moves(planned, dict.fromkeys(brokers), factor) == planned


def test_replicas_go_to_different_racks() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b"}
    current = {TopicPartition("t", index): [1, 2] for index in range(6)}
    for chosen in plan_moves(current, racks).values():
        assert {racks[each] for each in chosen} == {"a", "b"}
    fresh = plan_moves({T0: [9, 8]}, racks)
    assert {racks[each] for each in fresh[T0]} == {"a", "b"}
    three = plan_moves({T0: [1, 3, 4]}, racks)
    assert sorted(three[T0]) == [1, 3, 4]


def test_what_cannot_be_planned_is_said() -> None:
    with pytest.raises(BadReassignment, match="2 replicas, but there are 1 brokers"):
        plan_moves({T0: [1, 2]}, {1: None})
    with pytest.raises(BadReassignment, match="no broker"):
        plan_moves({T0: [1]}, {})


def test_throttles_name_who_is_read_and_who_is_filled() -> None:
    found = throttles_for({}, {T0: [2, 3]}, {T0: [1, 2]})
    assert found.leaders == {"t": "0:1,0:2"}
    assert found.followers == {"t": "0:3"}
    assert found.brokers == [1, 2, 3]


def test_throttles_hold_for_moves_that_are_under_way_too() -> None:
    move = PartitionReassignment((1, 4), (4,), (1,))
    found = throttles_for({T1: move}, {T0: [2]}, {T0: [1]})
    assert found.leaders == {"t": "0:1,1:1"}
    assert found.followers == {"t": "0:2,1:4"}
    again = throttles_for({T0: move}, {T0: [5]}, {T0: [1, 4]})
    assert again.followers == {"t": "0:5"}
