"""Where rows go: by key, in runs, in turn, or where the row says."""

from __future__ import annotations

from itertools import groupby

import pyarrow as pa
import pytest

from tidelog.client.columns.partitioner import TopicPartitioner
from tidelog.client.errors import InvalidRow
from tidelog.client.network.metadata import PartitionView, TopicView
from tidelog.types import NO_LEADER, ZERO_UUID


def topic_of(count: int, *, leaderless: tuple[int, ...] = ()) -> TopicView:
    partitions = {
        index: PartitionView(index, NO_LEADER if index in leaderless else 1, 0, (1,), (1,))
        for index in range(count)
    }
    return TopicView("t", ZERO_UUID, False, 0, partitions)


def nulls(count: int) -> pa.Array:
    return pa.nulls(count, pa.binary())


def partitions(
    kind: str, topic: TopicView, keys: pa.Array, given: pa.Array | None = None
) -> list[int]:
    chosen = TopicPartitioner(kind, 100).partitions(topic, keys, given, 10.0)
    assert chosen.type == pa.int32()
    found: list[int] = chosen.to_pylist()
    return found


def test_keys_go_where_javas_producer_sends_them() -> None:
    keys = pa.array([b"21", b"foobar", b"abc", b"a-little-bit-long-string"])
    assert partitions("default", topic_of(1000), keys) == [340, 166, 107, 112]


def test_a_slice_of_a_column_is_hashed_from_its_own_rows() -> None:
    keys = pa.array([b"x", None, b"21", b"foobar"]).slice(2)
    assert partitions("default", topic_of(1000), keys) == [340, 166]


def test_rows_without_a_key_stay_together_for_about_a_batch() -> None:
    found = partitions("default", topic_of(4), nulls(100))
    runs = [(partition, len(list(rows))) for partition, rows in groupby(found)]
    assert [rows for _, rows in runs] == [10] * 10
    assert {partition for partition, _ in runs} == {0, 1, 2, 3}


def test_a_run_goes_on_over_writes() -> None:
    partitioner = TopicPartitioner("default", 100)
    topic = topic_of(5)
    found = [partitioner.partitions(topic, nulls(4), None, 10.0)[0].as_py() for _ in range(5)]
    assert len(set(found)) < 5


def test_keyed_and_keyless_rows_may_be_mixed() -> None:
    keys = pa.array([b"21", None, b"foobar", None])
    found = partitions("default", topic_of(1000), keys)
    assert (found[0], found[2]) == (340, 166)
    assert found[1] == found[3]


def test_sticky_ignores_keys() -> None:
    keys = pa.array([b"%d" % row for row in range(10)])
    assert len(set(partitions("sticky", topic_of(50), keys))) == 1


def test_round_robin_takes_turns_and_ignores_keys() -> None:
    keys = pa.array([b"same"] * 7)
    found = partitions("round-robin", topic_of(3), keys)
    assert sorted(found[:3]) == [0, 1, 2]
    assert found[:4] == found[3:]


def test_rows_without_a_key_avoid_partitions_without_a_leader() -> None:
    found = partitions("default", topic_of(3, leaderless=(0, 2)), nulls(100))
    assert set(found) == {1}


def test_a_given_partition_comes_first() -> None:
    given = pa.array([2, None, 0], pa.int32())
    keys = pa.array([b"21", b"21", b"21"])
    assert partitions("default", topic_of(1000), keys, given) == [2, 340, 0]


@pytest.mark.parametrize("wrong", [-1, 3])
def test_a_partition_that_is_not_there_is_refused(wrong: int) -> None:
    given = pa.array([0, wrong], pa.int32())
    with pytest.raises(InvalidRow, match=f"partition {wrong} of topic t is not there: .* 0 to 2"):
        partitions("default", topic_of(3), nulls(2), given)


def test_no_rows_have_no_partitions() -> None:
    assert partitions("default", topic_of(3), nulls(0)) == []
